#!/bin/sh
# The first process of the machine that test/vm/run.py boots: mounts what a Debian has, control groups of
# version 2 only, runs /cay/command, says its exit status on the second serial line, and turns the machine off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t mqueue mqueue /dev/mqueue 2>/dev/null || { mkdir -p /dev/mqueue && mount -t mqueue mqueue /dev/mqueue; }
exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo 2>/dev/null
for module in loop btrfs overlay nf_tables nft_ct nft_redir nft_nat nft_reject nft_reject_inet nft_chain_nat veth fuse; do
    modprobe -q "$module" || echo "cay-vm: no module $module"
done
ip link set lo up
# Old ways that this kernel has switched off: on, so that what refuses them is cay.
# Before Linux 6.2 it cannot be switched off.
[ ! -e /proc/sys/dev/tty/legacy_tiocsti ] || echo 1 >/proc/sys/dev/tty/legacy_tiocsti
# What a control shows has to differ from the default, so a program may ask for more than that.
echo 4194304 >/proc/sys/net/core/rmem_max
mkdir -p /cay
mount "$(blkid -t PARTUUID=ca700002-01 -o device)" /cay
# Controllers are given to groups below; this shell leaves the root group's way, as a service manager would.
mkdir -p /sys/fs/cgroup/init
echo $$ >/sys/fs/cgroup/init/cgroup.procs
for controller in cpu memory pids; do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control; done
cd /cay || exit 1
(. ./command)
status=$?
sync
echo "cay-vm: the command ended with $status"
sleep 0.2
echo o >/proc/sysrq-trigger
sleep 60
