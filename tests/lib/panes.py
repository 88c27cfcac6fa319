# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The agent in a real terminal: tmux, to which keys are sent, and whose screen is read."""
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import nbt
import servers

# In the pane: what stands there before must be there again, and the terminal's modes too.
SHELL = r"""
echo stood here before
stty -g > {d}/before
{command}
echo "status $?"
stty -g > {d}/after
exec cat
"""


def words(text):
    """Numbers, ages and amounts of a screen replaced, blanks as one: what is left can be compared."""
    text = re.sub(r"\b\d+(\.\d+)?( ?[kMGTPE]?B|us|ms|[smhd%])?(?=\W|$)", "N", text)
    return re.sub(r" +", " ", text)


class Pane:
    """`nccl-bpftrace run` in a tmux pane of that size, for the jobs of this test run."""

    def __init__(self, columns, rows, *args, prefix="", shell=False):
        """prefix: goes before the agent's name. shell: an interactive one, with nothing started."""
        self.tmux = nbt.need("tmux", "tmux")
        self.directory = nbt.tempdir()
        self.socket = self.directory / "tmux"
        self.textfiles = self.directory / "textfiles"
        self.textfiles.mkdir()
        arguments = ["run", "--cgroup", servers.own_cgroup(), "--interval", "1",
                     "--textfile-dir", str(self.textfiles), *args]
        self.command = " ".join([prefix, str(nbt.AGENT), *map(shlex.quote, arguments)]).strip()
        script = self.directory / "script"
        script.write_text(SHELL.format(d=self.directory, command=self.command))
        conf = self.directory / "conf"
        conf.write_text("set -g default-terminal screen\nset -g status off\n"
                        "set -sg escape-time 0\n")
        program = ["bash", "--norc", "-i"] if shell else ["bash", script]
        self.run("-f", conf, "new-session", "-d", "-x", columns, "-y", rows, *program,
                 env={**os.environ, "LC_ALL": "C.UTF-8", "PS1": "prompt> "})
        nbt.defer(self.close)

    def run(self, *args, env=None):
        done = subprocess.run([self.tmux, "-S", self.socket, *map(str, args)], text=True,
                              capture_output=True, env=env)
        assert done.returncode == 0, f"tmux {args}: {done.stderr}"
        return done.stdout

    def close(self):
        for pid in self.agent_pids():
            os.kill(pid, signal.SIGKILL)
        subprocess.run([self.tmux, "-S", self.socket, "kill-server"], capture_output=True)

    def agent_pids(self):
        """Of the agent and its helpers; none when it has ended."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == bytes(nbt.AGENT) and bytes(self.textfiles) in words:
                found.append(int(path.parent.name))
        return sorted(found)

    def agent(self):
        return nbt.wait_for(self.agent_pids, "the agent")[0]

    def screen(self, escapes=False):
        return self.run("capture-pane", "-p", *(["-e"] if escapes else []))

    def lines(self):
        return self.screen().splitlines()

    def keys(self, *keys):
        self.run("send-keys", *keys)

    def type(self, text):
        self.run("send-keys", "-l", text)

    def resize(self, columns, rows):
        self.run("resize-window", "-x", columns, "-y", rows)

    def until(self, condition, what, seconds=30):
        """The first screen for which the condition holds."""
        found = []

        def look():
            screen = self.screen()
            if condition(screen):
                found.append(screen)
            return found

        try:
            nbt.wait_for(look, f"{what} on screen", seconds, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.screen()}") from None
        return found[0]

    def shows(self, text, seconds=30):
        return self.until(lambda screen: text in screen, repr(text), seconds)

    def row(self, pattern, seconds=30):
        """The first line that the pattern is found in."""
        screen = self.until(lambda s: re.search(pattern, s, re.M), repr(pattern), seconds)
        return next(line for line in screen.splitlines() if re.search(pattern, line))

    def ended(self, seconds=30):
        """The agent's exit status. The terminal must be as it was."""
        screen = self.until(lambda s: re.search(r"status \d+$", s, re.M), "the end", seconds)
        nbt.wait_for((self.directory / "after").exists, "the modes after the end")
        nbt.wait_for(lambda: (self.directory / "after").read_text(), "the modes after the end")
        assert screen.startswith("stood here before\n"), screen
        for name in ("STATE", "q quit"):
            assert name not in screen, screen
        assert (self.directory / "before").read_text() == (self.directory / "after").read_text()
        flags = self.run("display-message", "-p", "#{alternate_on} #{cursor_flag}")
        assert flags.split() == ["0", "1"], flags
        return int(re.search(r"status (\d+)$", screen, re.M)[1])
