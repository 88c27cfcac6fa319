#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Installs what building and testing need, from Debian or Ubuntu. Does nothing when all is there.
set -eu

packages="gcc libc6-dev make clang bpftool libbpf-dev libelf-dev zlib1g-dev libcap-dev
	libjansson-dev libncurses-dev ncurses-bin uthash-dev python3 binutils"

# Tests only; a test that misses one says so.
test_packages="g++ gdb tmux prometheus-node-exporter prometheus clang-format fuse3 libfuse3-dev
	gcc-aarch64-linux-gnu libc6-dev-arm64-cross libclang-rt-dev groff-base jsonnet
	prometheus-alertmanager acl systemd yamllint"

# `make deb` only
deb_packages="debhelper dpkg-dev"

[ "${1:-}" = --deb ] && packages="$packages $deb_packages"
[ "${1:-}" = --tests ] && packages="$packages $deb_packages $test_packages"
# Ubuntu has bpftool in linux-tools-common and no package of that name.
if grep -q '^ID=ubuntu' /etc/os-release && ! apt-cache show bpftool >/dev/null 2>&1; then
	packages=$(echo "$packages" | sed 's/\bbpftool\b/linux-tools-common/')
fi

installed=" $(dpkg-query -W -f '${Package}/${Status}\n' 2>/dev/null |
	sed -n 's,/install ok installed$,,p' | tr '\n' ' ')"
missing=
for package in $packages; do
	case $installed in
	*" $package "*) ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "scripts/setup.sh: missing:$missing: run 'sudo scripts/setup.sh' once" >&2
	exit 1
fi
echo "scripts/setup.sh: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=120 update >&2
# A server that a test starts itself must not be started by its package.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
fi
# shellcheck disable=SC2086
apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends $missing >&2
