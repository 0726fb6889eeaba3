# shellcheck shell=sh
# `./run test --debian SUITE`: all tests on another Debian than this machine's, with its Python and
# its Chromium. `run` reads this, and it uses the functions there.
#
# That Debian is a folder, and what runs in it sees it as the whole disk. It has this machine's kernel
# and network, and processes of its own, which end with the first of them, however that ends. The
# folder is kept, so only the first run takes a download; it may be removed at any time.

# What ./run expects of a Debian, and debootstrap's smallest one lacks.
packages=ca-certificates,python3,python3-venv

# debian_tests SUITE ARGUMENT...: `./run test ARGUMENT...` there.
debian_tests() {
    suite=${1-}
    case "$suite" in
    '' | *[!a-z]*) die "--debian wants a name of Debian's, such as trixie" ;;
    esac
    shift
    [ "$(id -u)" -eq 0 ] || die "only root can use another Debian: sudo ./run test --debian $suite"
    have debootstrap || apt_install debootstrap
    tree=$PWD/.debian/$suite
    [ -d "$tree" ] || need_debian
    end_set_up
    begin_set_up "$tree" # whose lock is kept until the tests have ended
    copy_project "$tree/root/smartlinkd"
    # shellcheck disable=SC2016 # for the shell there
    exec unshare --mount --propagation private --pid --fork --kill-child=KILL \
        sh -euc "$ENTER" sh "$tree" sh -c 'cd /root/smartlinkd && exec ./run test "$@"' sh "$@"
}

# Make a folder the root of all that follows in these namespaces.
# shellcheck disable=SC2016 # for the shell that is in them
ENTER='
tree=$1
shift
mount --bind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
'

need_debian() {
    # A suite that is younger than this debootstrap is made as the latest that it knows.
    script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    rm -rf "$tree.partial"
    mkdir -p "$tree.partial"
    quietly "fetching Debian $suite" \
        debootstrap --variant=minbase --include="$packages" "$suite" "$tree.partial" "" "$script"
    mv "$tree.partial" "$tree"
}

# copy_project FOLDER: what is in this one, committed or not, but for what ./run makes. What it made
# there stays.
copy_project() {
    mkdir -p "$1"
    find "$1" -mindepth 1 -maxdepth 1 ! -name '.venv*' ! -name .container -exec rm -rf {} +
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$1"
    # How the network is reached from here, whom pip asks, and whom it trusts.
    for file in resolv.conf hosts pip.conf ssl/certs/ca-certificates.crt; do
        [ ! -e "/etc/$file" ] || cp "/etc/$file" "$tree/etc/$file"
    done
}
