# Sourced by ./demo and ./test: installs what is lacking. Says what it does, and does nothing twice.

# need COMMAND PACKAGE ...: installs the Debian packages whose commands are missing.
need() {
    local missing=()
    while [ $# -ge 2 ]; do
        command -v "$1" >/dev/null 2>&1 || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "these are missing and there is no apt-get to install them: ${missing[*]}" >&2
        return 1
    fi
    echo "installing: ${missing[*]}"
    as_root apt-get install -y -q "${missing[@]}" >/dev/null 2>&1 ||
        { as_root apt-get update -q >/dev/null && as_root apt-get install -y -q "${missing[@]}" >/dev/null; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# The Rust toolchain of rust-toolchain.toml.
need_rust() {
    [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null 2>&1 && return 0
    need curl curl cc gcc
    echo "installing Rust with rustup"
    curl -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal >/dev/null
    PATH="$HOME/.cargo/bin:$PATH"
}

# FUSE, in the kernel and for this user.
need_fuse() {
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
    if [ ! -e /dev/fuse ]; then
        echo "there is no /dev/fuse: load the module (modprobe fuse), or start the container with" >&2
        echo "  --device /dev/fuse --cap-add SYS_ADMIN" >&2
        return 1
    fi
}
