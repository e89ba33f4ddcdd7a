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

# compile CARGO-ARGUMENTS… PACKAGE: cargo, with a line that tells how far it is; all of what it says
# only if it fails.
compile() {
    local said all
    said=$(mktemp)
    all=$(cargo tree -q -e normal,build --prefix none --no-dedupe -p "${!#}" 2>/dev/null | sort -u | wc -l)
    if ! cargo "$@" 2>&1 | tee "$said" | compiling "$all"; then
        cat "$said" >&2
        rm -f "$said"
        return 1
    fi
    rm -f "$said"
}

# Tells of cargo's lines on standard input: one that changes on a terminal, else one each 15
# seconds. $1: how many crates there are.
compiling() {
    local line n=0 begin=$SECONDS told=$SECONDS
    while IFS= read -r line; do
        case $line in
            *Compiling*) n=$((n + 1)) ;;
            *) continue ;;
        esac
        line="$n crates of at most $1, $((SECONDS - begin)) s: ${line##*Compiling }"
        if [ -t 1 ]; then
            printf '\r\033[K  %s' "$line"
        elif [ $((SECONDS - told)) -ge 15 ]; then
            told=$SECONDS
            echo "  $line"
        fi
    done
    if [ -t 1 ] && [ "$n" -gt 0 ]; then printf '\r\033[K'; fi
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
