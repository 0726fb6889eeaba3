# shellcheck shell=sh
# `./run install` and `./run uninstall`: the part of `run` that is about this machine, not about the
# clone. `run` reads it, and it uses the functions there.
#
# It makes an environment for the new version below /opt/smartlinkd; nothing else lives there. It refuses
# early what it can refuse; the new version itself (daemon/smartlinkd/deploy) does the rest. An
# environment that is not finished is removed; if this run was killed, the next one removes it.

VERSIONS=/opt/smartlinkd
UNITS=/usr/local/lib/systemd/system

need_systemd_and_root() {
    [ "$(id -u)" -eq 0 ] || die "only root can do that: sudo ./run $1"
    [ -d /run/systemd/system ] || die "systemd does not run here, so it can run no service"
}

# The service sees nobody's home, so a Python that lives in one is of no use to it.
find_service_python() {
    for python in /usr/bin/python3 /usr/local/bin/python3 \
        python3 python3.14 python3.13 python3.12 python3.11; do
        if have "$python" && "$python" -I - 2>/dev/null <<'END'; then
import sys

hidden = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")
sys.exit(sys.version_info < (3, 11) or sys.base_prefix.startswith(hidden))
END
            return 0
        fi
    done
    die "Python 3.11 or later is needed, outside of anybody's home." \
        "On Debian: apt-get install python3 python3-venv"
}

install_service() {
    find_service_python
    "$python" -I daemon/smartlinkd/deploy/preflight.py "$@"
    need_systemd_and_root install
    case $PWD/ in
    "$VERSIONS"/*) die "this clone is in $VERSIONS, which is for what is installed; move it" ;;
    esac
    umask 022
    # The configuration may name another one, or need none: in the end the new version tells.
    get_chromium ||
        say "there is no Chromium here: the service needs one (Google Chrome's, or the one" \
            "that browser.executable names), unless links and products come from APIs alone"
    mkdir -p "$VERSIONS"
    begin_set_up "$VERSIONS"
    fresh=$(mktemp -d "$VERSIONS/$(date +%Y-%m-%d).XXXXXX")
    TMPDIR=$(mktemp -d "$VERSIONS/tmp.XXXXXX")  # what a killed pip leaves there goes, too
    export TMPDIR
    trap 'rm -rf "$TMPDIR" "$log"; forget_unused "$fresh"' EXIT
    chmod 755 "$fresh"
    fill_environment "$fresh"
    # -I: no module of the working folder or PYTHONPATH is found before the environment's.
    "$fresh/bin/python" -I -m smartlinkd.deploy --units "$PWD/systemd" "$@"
}

# A copy of the sources, because a build writes beside them, and the clone is not root's.
fill_environment() {
    new_venv "$1"
    mkdir -p "$1/source" "$1/share/smartlinkd"
    cp -R pyproject.toml README.md daemon "$1/source"
    cp -R config.example.toml extension "$1/share/smartlinkd"
    chmod -R u=rwX,go=rX "$1/share/smartlinkd"  # whatever the clone was made with
    # shellcheck disable=SC2086 # the words of $pip
    quietly "installing what the build needs" $pip install -c requirements.txt setuptools
    # shellcheck disable=SC2086
    quietly "installing smartlinkd" \
        $pip install -c requirements.txt --no-build-isolation "$1/source[mcp,notices]"
    rm -rf "$1/source"
}

forget_unused() {
    [ "$(readlink "$VERSIONS/current")" = "${1##*/}" ] || rm -rf "$1"
}

uninstall_service() {
    need_systemd_and_root uninstall
    case "$*" in
    "" | --purge) ;;
    *) die "uninstall takes --purge, and nothing else" ;;
    esac
    # Sockets first, the owner's for crews among them: whoever connects to one has the service
    # started. All are patterns, because it is no fault when there is none (any more).
    sockets=$(systemctl show -p TriggeredBy --value "[s]martlinkd.service" "smartlinkd@*.service")
    # shellcheck disable=SC2086 # a list of names
    systemctl stop "[s]martlinkd.socket" "smartlinkd@*.socket" $sockets ||
        die "its sockets cannot be stopped"
    systemctl stop "[s]martlinkd.service" "smartlinkd@*.service" ||
        die "its services cannot be stopped"
    rm -f /etc/systemd/system/*.wants/smartlinkd.service \
        /etc/systemd/system/*.wants/smartlinkd.socket \
        /etc/systemd/system/*.wants/smartlinkd@*.service \
        /etc/systemd/system/*.wants/smartlinkd@*.socket
    for unit in smartlinkd smartlinkd@; do
        rm -f "$UNITS/$unit.service" "$UNITS/$unit.socket"
    done
    rm -rf "$UNITS"/smartlinkd.socket.d "$UNITS"/smartlinkd@*.socket.d
    # Those that were made here, and the folder if nothing else is in it.
    rm -rf "$VERSIONS"/current "$VERSIONS"/????-??-??.?????? "$VERSIONS"/tmp.??????
    [ ! -d "$VERSIONS" ] || rmdir "$VERSIONS" || say "$VERSIONS has other files, and is kept"
    [ ! -L /usr/local/bin/smartlinkd ] || rm -f /usr/local/bin/smartlinkd
    systemctl daemon-reload
    systemctl reset-failed 'smartlinkd.*' 'smartlinkd@*' 2>/dev/null || :
    if [ "$*" = --purge ]; then
        for folder in /etc /etc/systemd/system /var/lib /var/lib/private; do
            rm -rf "$folder"/smartlinkd "$folder"/smartlinkd@* "$folder"/smartlinkd.*.d
        done
        for unit in $(grep -lsE '^Service=smartlinkd(@.*)?\.service' /etc/systemd/system/*); do
            say "$unit is yours, and is left: systemctl disable ${unit##*/}; rm $unit"
        done
        say "nothing else of smartlinkd is left here"
    else
        say "the configuration in /etc/smartlinkd and the state in /var/lib/smartlinkd are kept," \
            "with those of instances and the changes to the units in /etc/systemd/system;" \
            "'./run uninstall --purge' removes all of them"
    fi
}
