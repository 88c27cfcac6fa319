#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Checks grafana/rendered/dashboards against Grafana's own schema, as its Python package
grafana-foundation-sdk has it: each dashboard is read into the package's types and written again.
A field that does not come back is unknown to Grafana; a value of another type is named, too.

usage: scripts/check-dashboards.py [FILE...]    exit status: 0 clean, 1 not, 77 no such package
"""
import enum
import json
import sys
import typing
from pathlib import Path

try:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import dashboard as schema
except ImportError:
    print("check-dashboards: grafana-foundation-sdk is not installed "
          "(pip install grafana-foundation-sdk)", file=sys.stderr)
    sys.exit(77)


def lost(ours, theirs, path=""):
    """Fields of ours that are not in theirs, or changed."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                # what is empty may be left out
                if value not in ([], {}, "", None):
                    yield f"{path}.{key}: unknown to Grafana"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (a, b) in enumerate(zip(ours, theirs)):
            yield from lost(a, b, f"{path}[{i}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is read as {theirs!r}"


def fits(value, hint):
    """Whether a value is of the type that a field of the schema has; any of a union will do."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (typing.Any, object) or origin is None and not isinstance(hint, type):
        return True
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return any(fits(value, one) for one in args)
    if origin is typing.Literal:
        return value in args
    if origin is list:
        return isinstance(value, list) and all(fits(one, args[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, args[1]) for one in value.values())
    if issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, dict) and hasattr(hint, "from_json"):  # the package left it as it was
        return not list(lost(value, written(hint.from_json(value))))
    return isinstance(value, hint)


def written(thing):
    return json.loads(json.dumps(thing, cls=JSONEncoder))


def misfits(thing, path=""):
    """What is not of the type that the schema gives it, in a tree of the package's objects."""
    if isinstance(thing, list):
        for i, one in enumerate(thing):
            yield from misfits(one, f"{path}[{i}]")
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from misfits(value, f"{path}.{key}")
    elif type(thing).__module__.startswith("grafana_foundation_sdk") and \
            not isinstance(thing, enum.Enum):
        hints = typing.get_type_hints(type(thing))
        for name, value in vars(thing).items():
            if name in hints and not fits(value, hints[name]):
                yield f"{path}.{name}: {value!r} is no {hints[name]}"
            yield from misfits(value, f"{path}.{name}")


def check(path):
    ours = json.loads(path.read_text())
    read = schema.Dashboard.from_json(ours)
    return list(lost(ours, written(read))) + list(misfits(read))


def main():
    root = Path(__file__).resolve().parents[1]
    files = [Path(name) for name in sys.argv[1:]] or \
        sorted((root / "grafana/rendered/dashboards").glob("*.json"))
    register_default_plugins()
    faults = 0
    for path in files:
        found = check(path)
        faults += len(found)
        print(f"{path.name}: {'; '.join(found) or 'as the schema says'}")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
