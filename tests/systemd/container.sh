# shellcheck shell=sh
# `./run test --systemd`: prepare the files of the container, and boot it (container.py). `run`
# sources this file, which uses the functions of `run`.

# The container has no network, so fetch the packages of an installation, and two proxies.
need_prepared() {
    # shellcheck source=systemd/install.sh
    . systemd/install.sh
    find_service_python
    wanted=$(recipe requirements.txt pyproject.toml)
    [ "$(cat .container/made-from 2>/dev/null)" != "$wanted" ] || return 0
    rm -rf .container
    mkdir -p .container/wheels .container/debs .container/proxies
    # shellcheck disable=SC2046 # a list of packages
    quietly "fetching the packages of an installation" \
        .venv/bin/python -m pip --disable-pip-version-check --no-input download \
        --only-binary=:all: --python-version "$("$python" -c 'import platform as p
print(p.python_version())')" -d .container/wheels -c requirements.txt $(runtime_packages)
    apt_refresh
    (cd .container/debs && quietly "fetching Debian's nginx and Caddy" $apt download nginx caddy)
    for package in .container/debs/*.deb; do
        dpkg-deb -x "$package" .container/proxies
    done
    printf '%s\n' "$wanted" >.container/made-from
}

# The last commit whose package was called `daemon`, for test_upgrade_from_before.py.
BEFORE=9dc880ceadf987da03f5b140a7121c0806176eb8

# Without that commit, in a shallow clone, the tests of the upgrade are skipped.
need_before() {
    [ "$(cat .container/before/commit 2>/dev/null)" != "$BEFORE" ] || return 0
    rm -rf .container/before
    git cat-file -e "$BEFORE^{commit}" 2>/dev/null || return 0
    mkdir -p .container/before
    git archive "$BEFORE" | tar -x -C .container/before
    printf '%s\n' "$BEFORE" >.container/before/commit
}

# Print the packages that smartlinkd and its build need.
runtime_packages() {
    "$python" - <<'END'
import pathlib
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *extras["mcp"], *extras["notices"], "setuptools"]
print(*(line.replace(" ", "") for line in wanted))
END
}

systemd_tests() {
    skipped="the tests under systemd are SKIPPED:"
    if [ "$(id -u)" -ne 0 ]; then
        say "$skipped only root can boot a container (sudo ./run test --systemd)"
        exit 77
    fi
    if ! have apt-get || ! have dpkg-deb; then
        say "$skipped what they need comes from Debian's packages, and there is no apt-get here"
        exit 77
    fi
    have systemd-nspawn || apt_install systemd-container
    have ip || apt_install iproute2
    need_chromium
    end_set_up
    begin_set_up tests/systemd/container.sh # for .container, so that other runs need not wait for it
    need_prepared
    need_before
    end_set_up
    exec .venv/bin/python tests/systemd/container.py --wheels "$PWD/.container/wheels" \
        --proxies "$PWD/.container/proxies" "$@"
}
