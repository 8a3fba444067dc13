# The part of set_up.sh that builds Horovod (HOROVOD=1): with Gloo, for TensorFlow, without MPI and CUDA.
#
# Horovod is published as source only. It is older than this TensorFlow, which still builds it if it finds
# three headers: two that TensorFlow's own wheel carries where no compiler looks, and one that has moved.
# One line is added to its source: ranks of a process set, and every rank is in one, ask the name of their
# host for an address, where HOROVOD_GLOO_IFACE names an interface. On Debian that address is 127.0.1.1.

horovod_lock=requirements/horovod.txt
build_horovod="--no-binary horovod --no-build-isolation" # for pip

check_for_horovod() { # -> nothing, or fails and says what is missing
    for compiler in ${CXX:-c++ g++}; do
        if command -v "$compiler" >/dev/null; then break; fi
        compiler=
    done
    [ -n "$compiler" ] ||
        fail "HOROVOD=1 builds Horovod, and no C++ compiler was found; load its module, install g++ (Debian and" \
            "Ubuntu: apt install g++), or name one with CXX=/path/to/g++."
    case $PWD/$VENV in
    *[[:space:]:]*) fail "Horovod cannot be built in VENV=$VENV, because its path has a space or a colon." ;;
    esac
}

lock_without_horovod() { # -> what is installed before the build, because the build uses it
    awk '/^[a-z]/ { is_horovod = /^horovod==/ } !is_horovod' "$horovod_lock"
}

write_cmake() { # FILE CMAKE: the program, but it adds the line, and builds one library, without CUDA and for no debugger
    cat >"$1" <<EOF
#!/bin/sh
set -e
if [ "\$1" = --build ]; then
    shift 2
    exec "$2" --build . --target tensorflow "\$@"
fi
changed="\$1/horovod/common/gloo/gloo_context.cc"
sed -i 's/^  assert(global_context.IsEnabled());\$/&\\n  gloo_iface_ = global_context.gloo_iface_;/' "\$changed"
grep -q '^  gloo_iface_ = global_context' "\$changed"
exec "$2" "\$@" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O3 -DNDEBUG" \\
    -DCMAKE_CUDA_COMPILER= -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=TRUE
EOF
    chmod +x "$1"
}

install_horovod() ( # into VENV, where TensorFlow is; a shell of its own keeps the variables apart
    printf 'Building Horovod (once; three to four minutes on two cores).\n' >&2
    environment=$(cd "$VENV" && pwd)
    work=$environment/.horovod
    moved=$work/include/tensorflow/compiler/xla/client
    mkdir -p "$moved"
    lock=$work/lock.txt
    lock_without_horovod >"$lock"
    install_packages

    echo '#include "xla/hlo/builder/xla_builder.h"' >"$moved/xla_builder.h"
    carried=$(cd "$environment"/lib/python3.*/site-packages/tensorflow/include/external && pwd)
    write_cmake "$work/cmake" "$environment/bin/cmake"
    export CPLUS_INCLUDE_PATH="$work/include:$carried/highwayhash:$carried/farmhash_archive/src${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
    export CXXFLAGS="-w -include cstdint ${CXXFLAGS:-}" # compilers from GCC 13 on no longer include it unasked
    export MAKEFLAGS="-j$(nproc)" HOROVOD_CMAKE="$work/cmake"
    export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
    export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_NVTX=1 HOROVOD_CPU_OPERATIONS=GLOO
    # The same on every machine, not what the one that builds has.
    if [ "$(uname -m)" = x86_64 ]; then export HOROVOD_BUILD_ARCH_FLAGS="-mavx -mfma -mf16c"; fi
    unset MAKEOVERRIDES MFLAGS HOROVOD_GPU HOROVOD_GPU_OPERATIONS
    lock=$horovod_lock
    from_source=$build_horovod
    install_packages
    rm -rf "$work"
)

download_horovod() { # into the wheelhouse $folder, which has the packages of $build
    lock=$VENV/lock.txt
    lock_without_horovod >"$lock"
    pip_with_lock download --no-cache-dir --dest "$folder" || fail_to_fill
    # pip asks the source what it needs, with setuptools of the lock.
    "$VENV/bin/python" -m pip install --quiet --no-index --find-links "$folder" --no-deps setuptools || fail_to_fill
    lock=$horovod_lock
    from_source=$build_horovod
    pip_with_lock download --no-cache-dir --dest "$folder" || fail_to_fill
}
