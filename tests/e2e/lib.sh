# What the end-to-end scripts share. The caller has set bin, the program, and dir, its own folder.

# collapipe ARGS: status, and what it wrote in $out and $err.
cli() {
    "$bin" "$@" >"$dir/.out" 2>"$dir/.err" </dev/null
    status=$?
    out=$(cat "$dir/.out")
    err=$(cat "$dir/.err")
}

checks=0
# check WHAT COMMAND...: the command must succeed.
check() {
    local what=$1
    shift
    checks=$((checks + 1))
    if ! "$@"; then
        printf 'FAILED: %s\n  %s\n--- status %s, standard output:\n%s\n--- standard error:\n%s\n' \
            "$what" "$*" "${status:-}" "${out:-}" "${err:-}" | head -60
        exit 1
    fi
}
has() { [[ $1 == *"$2"* ]]; }
