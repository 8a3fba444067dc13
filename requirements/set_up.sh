#!/bin/sh
# Makes the environment of the Makefile's targets, or a wheelhouse to make it from.
#
#   set_up.sh environment   make the virtual environment VENV from a lock file, or check an existing one
#   set_up.sh wheelhouse    download every locked package into WHEELHOUSE
#
# Both with Horovod if HOROVOD=1 (see horovod.sh).
#
# All values arrive as environment variables (see the Makefile), so no value is ever read as shell.
# A finished environment holds its stamp: a line that names the build, the Python and Horovod if it is there,
# then a copy of what was locked. If the stamp is missing or differs, the environment is made again from
# nothing. So it always holds exactly what its stamp says, never a mixture of two.
set -eu

: "${PROFILE:=quick}" "${ENV:=venv}" "${VENV:=.venv}" "${TF:=}" "${PYTHON:=}" "${WHEELHOUSE:=}" "${HOROVOD:=}"

# The minor versions in pyproject.toml's requires-python. The first is the one that the lock is tested with.
supported="3.11 3.12 3.13"
owned="$VENV/.ps-allreduce"       # marks a folder that this script made and may empty
stamp="$VENV/ps-allreduce.lock"   # ps_allreduce/environment.py knows this name

fail() {
    printf '%s\n' "$*" >&2
    exit 2
}

one_of() { # NAME VALUE CHOICE...
    name=$1 value=$2
    shift 2
    for choice in "$@"; do
        if [ "$value" = "$choice" ]; then return; fi
    done
    fail "$name=$value is not known; choose one of: $*."
}

version_of() { # COMMAND -> its minor version, or nothing if it does not start
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

is_supported() { # VERSION
    case " $supported " in
    *" ${1:-none} "*) return 0 ;;
    *) return 1 ;;
    esac
}

check_python() { # COMMAND -> nothing, or fails and says what is wrong
    version=$(version_of "$1")
    [ -n "$version" ] || fail "PYTHON=$1 cannot be started; name the command or path of a Python ($supported)."
    is_supported "$version" || fail "PYTHON=$1 is Python $version; the suite needs one of: $supported."
}

base_python() { # -> the Python that made the environment, so that a new lock keeps it
    "$VENV/bin/python" -c 'import sys; print(sys._base_executable)' 2>/dev/null || true
}

find_python() { # -> the command of the first supported Python
    for candidate in "$(base_python)" python3.11 python3.12 python3.13 python3 python; do
        if is_supported "$(version_of "$candidate")"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "No Python ($supported) was found as python3.11, python3.12, python3.13, python3 or python; install" \
        "one, load its module, or name it with PYTHON=/path/to/python3.11."
}

create_venv() { # FOLDER, with the Python in $python
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python lacks the modules venv and ensurepip; install them (Debian and Ubuntu: apt install" \
            "python3-venv), name another Python with PYTHON=, or use ENV=existing."
    "$python" -m venv "$1" ||
        fail "The virtual environment $1 could not be made; the reason is above."
}

. requirements/horovod.sh

# ---- ENV=venv

stamped() { # FIELD (2 build, 5 Python, 7 Horovod) -> its value in the stamp, or nothing if there is no stamp
    if [ -x "$VENV/bin/python" ] && [ -f "$stamp" ]; then
        head -n 1 "$stamp" | cut -d ' ' -f "$1"
    fi
}

wanted_stamp() {
    printf '# %s build, Python %s%s\n' "$build" "$version" "${horovod:+ with Horovod}"
    cat "$lock" ${horovod:+"$horovod_lock"}
}

is_current() {
    [ -x "$VENV/bin/python" ] && wanted_stamp | cmp -s - "$stamp"
}

claim_folder() {
    mkdir -p "$VENV" 2>/dev/null && [ -w "$VENV" ] ||
        fail "The folder VENV=$VENV cannot be written; name another with VENV=/path/to/folder."
    [ -e "$owned" ] || [ -z "$(ls -A "$VENV")" ] ||
        fail "VENV=$VENV holds files that 'make setup' did not make, and they are left alone; name a new" \
            "folder with VENV=, or use an environment of your own with ENV=existing PYTHON=$VENV/bin/python."
    exec 9>"$owned"
    if command -v flock >/dev/null; then flock 9; fi # a second make waits here for the first
}

empty_folder() { # but keep the mark of ownership, so that an interrupted start can be repeated
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name .ps-allreduce ! -name .pip-cache -exec rm -rf {} +
}

pip_with_lock() { # ARGUMENTS of pip
    # --no-deps: the lock names every package, so there is nothing to solve. Only wheels, but for Horovod:
    # nothing else is built or runs code during installation. Only a terminal shows progress.
    quiet=--quiet
    if [ -t 1 ]; then quiet=; fi
    "$VENV/bin/python" -m pip "$@" --require-hashes --only-binary :all: ${from_source:-} --no-deps \
        $quiet --disable-pip-version-check --requirement "$lock"
}

install_packages() {
    if [ -n "$WHEELHOUSE" ]; then
        # No configuration: without a network, pip would wait for a link in it.
        export PIP_CONFIG_FILE=/dev/null
        pip_with_lock install --isolated --no-index --find-links "$WHEELHOUSE" ||
            fail "The set-up is not complete, for the reason above. If a package is missing, the wheelhouse" \
                "$WHEELHOUSE is not for the $build build and Python $version on this kind of machine: fill it with" \
                "'make wheelhouse TF=$build PYTHON=python$version${horovod:+ HOROVOD=1}' on one that has internet."
        return
    fi
    # The cache lies in VENV, because home directories on clusters are small. --no-user: some sites
    # configure pip with --user, which a virtual environment refuses.
    pip_with_lock install --no-user --cache-dir "${PIP_CACHE_DIR:-$VENV/.pip-cache}" ||
        fail "The set-up is not complete, for the reason above; run the same command again once it is mended" \
            "(without internet: see 'make wheelhouse' in docs/setup.md)."
}

link_checkout() { # let the environment's Python import this checkout from any working directory
    for packages in "$VENV"/lib/python3.*/site-packages; do
        link="$packages/ps_allreduce_checkout.pth"
        # A path file needs no build and no files in the checkout, unlike an editable install.
        [ "$(cat "$link" 2>/dev/null)" = "$PWD" ] || printf '%s\n' "$PWD" >"$link"
    done
}

build_venv() {
    [ -z "$WHEELHOUSE" ] || [ -d "$WHEELHOUSE" ] ||
        fail "WHEELHOUSE=$WHEELHOUSE is not a folder; make it with 'make wheelhouse' on a machine that has internet."
    if [ -n "$horovod" ]; then check_for_horovod; fi
    claim_folder
    if is_current; then return; fi
    printf 'Setting up %s from %s with Python %s (once; a few minutes).\n' "$VENV" "$lock" "$version" >&2
    empty_folder
    create_venv "$VENV"
    install_packages
    if [ -n "$horovod" ]; then install_horovod; fi
    rm -rf "$VENV/.pip-cache"
    wanted_stamp >"$stamp.new"
    mv "$stamp.new" "$stamp" # last and in one step: an unfinished environment has no stamp
}

set_up_venv() {
    build=${TF:-$(stamped 2)}
    build=${build:-cpu}
    one_of TF "$build" cpu cuda
    lock=requirements/$build.txt
    horovod=${horovod:-$(stamped 7)}
    if [ "$HOROVOD" = 0 ]; then horovod=; fi
    version=
    [ -n "$PYTHON" ] || version=$(stamped 5)
    if ! is_supported "$version"; then
        python=${PYTHON:-$(find_python)}
        check_python "$python"
    fi
    if ! is_current; then
        python=${python:-$(find_python)}
        version=$(version_of "$python")
        build_venv
    fi
    link_checkout
}

# ---- ENV=existing

check_existing() {
    python=${PYTHON:-python3}
    check_python "$python"
    "$python" -m ps_allreduce.environment >/dev/null
    [ -z "$horovod" ] || "$python" -c 'import horovod' 2>/dev/null ||
        fail "HOROVOD=1: this environment has no Horovod, and ENV=existing installs nothing; install it there."
}

# ---- the wheelhouse

fail_to_fill() {
    fail "The wheelhouse $folder is not complete, for the reason above; run the same command again."
}

fill_wheelhouse() {
    build=${TF:-cpu}
    one_of TF "$build" cpu cuda
    lock=requirements/$build.txt
    folder=${WHEELHOUSE:-wheelhouse}
    python=${PYTHON:-$(find_python)}
    check_python "$python"
    mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] ||
        fail "The folder WHEELHOUSE=$folder cannot be written; name another with WHEELHOUSE=/path/to/folder."
    VENV=$(mktemp -d) # only for its pip: the system's Python may have none
    trap 'rm -rf "$VENV"' EXIT
    create_venv "$VENV"
    printf 'Downloading %s for Python %s into %s.\n' "$lock" "$version" "$folder" >&2
    pip_with_lock download --no-cache-dir --dest "$folder" ||
        fail_to_fill
    if [ -n "$horovod" ]; then download_horovod; fi
    printf "Copy %s to the other machine and run there: make setup TF=%s PYTHON=python%s%s WHEELHOUSE=<copy>\n" \
        "$folder" "$build" "$version" "${horovod:+ HOROVOD=1}"
}

one_of PROFILE "$PROFILE" quick standard
one_of ENV "$ENV" venv existing
one_of HOROVOD "${HOROVOD:-0}" 0 1
horovod=${HOROVOD#0}
case "$1-$ENV" in
environment-venv) set_up_venv ;;
environment-existing) check_existing ;;
wheelhouse-*) fill_wheelhouse ;;
esac
