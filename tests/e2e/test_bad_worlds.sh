#!/usr/bin/env bash
# Worlds that cannot be, or hardly: whichever policy is asked, plan and simulate end in one clear
# sentence or in figures that are all finite.
# usage: test_bad_worlds.sh path/to/collapipe
set -u
. "$(dirname "$0")/lib.sh"
bin=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export NO_COLOR=1

# static has only one cut, which would have to follow the world; test_bad_input.sh asks it.
policies=$("$bin" plan --help | sed -n '/^policies/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -v '^static$')
check "all policies are asked" [ "$(printf '%s\n' "$policies" | wc -l)" -ge 18 ]

# finite TEXT: one JSON document without NaN; whatever is planned ends within a year.
finite() {
    python3 -c '
import json, sys
def bad(x): raise ValueError(x)
def walk(x, key):
    if isinstance(x, dict):
        for k in x: walk(x[k], k)
    elif isinstance(x, list):
        for y in x: walk(y, key)
    elif isinstance(x, float):
        assert abs(x) < 1e30, (key, x)
        assert key != "latency_s" or 0 < x <= 366 * 86400, x
walk(json.loads(sys.argv[1], parse_constant=bad), "")' "$1" 2>"$dir/.why"
}

# answered ARGS: a document that is finite, or one sentence.
planned=0 refused=0
answered() {
    cli "$@" --format json
    if [ "$status" = 0 ]; then
        check "'$*' has finite figures: $out" finite "$out"
        planned=$((planned + 1))
        return
    fi
    check "'$*' has status 1 or 2" [ "$status" = 1 -o "$status" = 2 ]
    check "'$*' says one sentence" [ "$(printf '%s\n' "$err" | wc -l)" = 1 ]
    check "'$*' says what is wrong" [ "${#err}" -gt 40 -a "${err#collapipe: }" != "$err" ]
    check "'$*' has the error as a document: $out" has "$out" '"message": "'
    refused=$((refused + 1))
}

# world ARGS: every policy in one world.
world() {
    local p
    for p in $policies; do
        answered plan "$@" --policy "$p"
    done
    answered simulate "$@" --policy "$(printf '%s' "$policies" | tr '\n' ,)" --rounds 3 --seeds 1 \
        --threads 1 --progress off
    answered plan "$@" --explain
}

cat >config.yaml <<'EOF'
seed: 5
model: {layers: 3, width: 32, heads: 2, ffn: 64, max_len: 12, vocab: 60}
train: {micro_batch: 4, micro_batches: 3, micro_max: 4, local_steps: 4}
EOF
pair='clusters=[{name: a, devices: [{name: phone}, {name: tablet, gflops: 40}]},
    {name: b, devices: [{name: board}]}]'
trace() {
    printf 'round,cluster,node,quantity,value\n%s\n' "$1" >trace.csv
    traced=("$pair" radio.kind=trace radio.trace=trace.csv)
}

# no devices
world 'clusters=[{name: a}]'
# one device, one layer
world clusters=1x1 model.layers=1
# more devices than layers
world clusters=1x6 model.layers=2
# a band of a kilohertz
world "$pair" radio.d2d_mhz=0.001 radio.up_mhz=0.001
# 100 km away
world 'clusters=[{name: a, devices: [{name: phone, x_m: 100000}, {name: tablet}]}]'
# memory below a layer
world 'clusters=[{name: a, devices: [{name: phone, mem_mib: 0.01}, {name: tablet, mem_mib: 0}]}]'
# no budget
world 'clusters=[{name: a, devices: [{name: phone, budget_j: 0}, {name: tablet, budget_j: 1e-6}]}]'
# V' = 0
world "$pair" plan.v=0
# NaN in a trace
trace 1,a,phone,gain_d2e,nan
world "${traced[@]}"
# a gap in a trace
trace $'1,a,phone,gain_d2e,1e-9\n3,a,phone,gain_d2e,'
world "${traced[@]}"
# no way between devices
trace 1,a,phone/tablet,gain_d2d,1e-30
world "${traced[@]}"
# no way to the edge server
trace $'1,a,cu,gain_d2e,1e-30\n1,a,phone,gain_d2e,1e-30\n1,a,tablet,gain_d2e,1e-30'
world "${traced[@]}"
# nobody there in round 2
trace $'2,b,board,present,0\n3,b,board,present,1'
world "${traced[@]}"
check "many of these worlds have plans" [ "$planned" -gt 100 ]

echo "bad worlds: $checks checks passed, $planned documents, $refused named refusals"
