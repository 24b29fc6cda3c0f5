#!/usr/bin/env bash
# What goes wrong for users: each ends in one clear sentence and the right status, and nothing that
# was saved is lost.
# usage: test_bad_input.sh path/to/collapipe
set -u
. "$(dirname "$0")/lib.sh"
dir=$(mktemp -d)
cp "$(realpath "$1")" "$dir/collapipe" || exit 1 # where any user may run it
bin=$dir/collapipe
run_pid=
mounted=
cleanup() {
    [ -n "$run_pid" ] && kill -KILL "$run_pid" 2>/dev/null
    [ -n "$mounted" ] && umount -l "$mounted"
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir" || exit 1
export NO_COLOR=1

value() { python3 -c 'import json, sys; print(eval("d" + sys.argv[2], {"d": json.loads(sys.argv[1])}))' "$1" "$2"; }

# refused STATUS TEXT... -- ARGS...: one sentence on standard error that has every TEXT.
refused() {
    local expected=$1 text=() t
    shift
    while [ "$1" != -- ]; do
        text+=("$1")
        shift
    done
    shift
    cli "$@"
    check "'$*' has status $expected" [ "$status" = "$expected" ]
    check "'$*' says one sentence" [ "$(printf '%s\n' "$err" | wc -l)" = 1 ]
    check "'$*' says who it is from" [ "${err#collapipe: }" != "$err" ]
    for t in "${text[@]}"; do
        check "'$*' says $t" has "$err" "$t"
    done
}

# --- data for all of it: three classes, short texts, two clusters of two devices
mkdir data
words=(red fox stone river cloud apple gold)
for file in train heldout; do
    printf 'text\tlabel\n' >data/$file.tsv
    for i in $(seq 1 60); do
        printf '%s %s %s\t%s\n' "${words[i % 7]}" "${words[i % 5]}" "${words[i % 3]}" $((i % 3))
    done >>data/$file.tsv
done
cat >config.yaml <<'EOF'
seed: 5
model: {layers: 3, width: 16, heads: 2, ffn: 24, max_len: 12, vocab: 60}
data: {path: data, partition: iid}
train: {micro_batch: 4, micro_batches: 4, local_steps: 4, lr: 1e-2}
fed: {rounds: 4}
run: {events: 0}
clusters:
  - {name: a, devices: [{name: phone, gflops: 5}, {name: tablet, gflops: 9}]}
  - {name: b, devices: [{name: board}, {name: mini}]}
EOF

# --- configuration: status 2, with the place
printf 'train:\n  lr: 0.1\nfed:\n  rouns: 3\n' >key.yaml
refused 2 "key.yaml:4:3: fed.rouns" "did you mean 'fed.rounds'?" -- run key.yaml
printf 'train:\n  lr: fast\n' >type.yaml
refused 2 "type.yaml:2:7: train.lr: 'fast'" -- run type.yaml
printf 'train: [\n' >broken.yaml
refused 2 "broken.yaml:2:1" -- run broken.yaml
refused 2 "command line: train.lrr" "did you mean 'train.lr'?" -- run train.lrr=1
refused 2 "'0' is out of range" "[1, 1000000]" -- run fed.rounds=0
refused 2 "c9.x" "a.phone" -- run 'changes=[{round: 2, node: c9.x, kind: leave}]'
refused 2 "missing.yaml" -- run missing.yaml

# --- data: status 1, with file, row and value
refused 1 "nowhere.tsv" "no file or folder" -- run data.path=nowhere.tsv
refused 1 "other.tsv" "No such file" -- run data.heldout=other.tsv
mkdir none
refused 1 "none" "train.tsv" -- run data.path=none
for bad in -1 1.0 nan 4294967296; do
    printf 'text\tlabel\nred\t0\nfox\t1\nbad\t%s\n' "$bad" >label.tsv
    refused 1 "label.tsv: row 3 (line 4)" "'$bad'" -- run data.path=label.tsv
done
mkdir odd
cp data/train.tsv odd
printf 'text\tlabel\nred\t0\nfox\t7\n' >odd/heldout.tsv
refused 1 "odd/heldout.tsv: row 2 (line 3)" "'7' is none of the 3 class names" -- run data.path=odd
: >empty.tsv
refused 1 "empty.tsv: 0 samples" -- run data.path=empty.tsv
printf 'text\tlabel\n' >header.tsv
refused 1 "header.tsv: 0 samples" -- run data.path=header.tsv
printf 'words,class\na,0\n' >columns.csv
refused 1 "columns.csv" "words" "class" -- run data.path=columns.csv
check "what was refused made no run" [ ! -e runs ]

# --- memory for not even one layer: the device, what is needed and what there is
refused 1 "largest device tablet has 12.3 KiB" "one layer needs" "KiB, the" -- run \
    'clusters=[{name: a, devices: [{name: phone, mem_mib: 0.01}, {name: tablet, mem_mib: 0.012}]}]'
refused 1 "do not fit into phone" "they need" "it has 10.2 KiB" -- run plan.policy=static \
    'plan.cuts=[[1, 2]]' \
    'clusters=[{name: a, devices: [{name: phone, mem_mib: 0.01}, {name: tablet}]}]'

# --- worlds that cannot be: named, or planned around
refused 1 "cluster a has no devices" -- plan 'clusters=[{name: a}]'
refused 2 "a world has 1 to" "not 0" -- plan clusters=0x3
refused 2 "'0' is out of range" "[0.001, 100000]" "radio.d2d_mhz" -- plan radio.d2d_mhz=0
refused 2 "the reserve of 9 J is more than its battery holds" -- plan data.path=nowhere \
    'clusters=[{name: a, devices: [{name: phone, battery_j: 5, battery_reserve_j: 9}]}]'
cli plan 'clusters=[{name: a, arrivals: 5, devices: [{name: phone, battery_j: 5}]}]'
check "what training does not look at is told" has "$err" "warning: arrivals of samples: only simulated"
cli plan clusters=1x1 model.layers=1 --format json
check "mains and waiting data are not worth a word" [ -z "$err" ]
check "one device and one layer can be planned" [ "$status" = 0 ]
cli plan clusters=1x12 model.layers=2 --format json
check "more devices than layers can be planned" [ "$status" = 0 ]

# --- traces: status 1 with file and line; what a gap is
trace=(radio.kind=trace radio.trace=trace.csv)
trace() { printf 'round,cluster,node,quantity,value\n%s\n' "$1" >trace.csv; }
refused 2 "radio.trace names no file" -- plan radio.kind=trace
refused 1 "trace.csv" "No such file" -- plan "${trace[@]}"
trace 1,a,phone,gain_d2e,nan
refused 1 "trace.csv:2: gain_d2e: 'nan' is not a finite number" "leave the value empty" -- plan "${trace[@]}"
trace 1,a,phone,gain_d2e,0
refused 1 "trace.csv:2: gain_d2e: '0' is out of range" "present 0" -- plan "${trace[@]}"
trace 1,a,fone,present,0
refused 1 "trace.csv:2: the cluster a has no node 'fone'; did you mean 'phone'?" -- plan "${trace[@]}"
trace $'1,a,phone,present,0\n1,a,tablet,present,0'
refused 1 "a: none of its 2 devices is present" -- plan "${trace[@]}"
trace $'1,a,phone,gain_d2e,1e-9\n3,a,phone,gain_d2e,'
refused 2 "trace.csv has 3 rounds, fed.rounds is 4" "hold or cycle" -- plan "${trace[@]}" radio.trace_end=stop
cli plan "${trace[@]}" --format json
check "a trace with a gap can be planned" [ "$status" = 0 ]

# --- measured figures: the same reader; they count
printf 'cluster,node,quantity,value\n%s\n' "a,phone,rate_flops,fast" >figures.csv
refused 1 "figures.csv:2: rate_flops: 'fast' is not a finite number" -- plan plan.figures=figures.csv
printf 'cluster,node,quantity,value\na,phone,mem_bytes,9\na,tablet,mem_bytes,9\n' >figures.csv
refused 1 "one layer needs" "has 9 B" -- plan plan.figures=figures.csv
printf 'cluster,node,quantity,value\na,phone,rate_flops,1e15\na,tablet,rate_flops,1e6\n' >figures.csv
cli plan plan.figures=figures.csv --format json
check "figures can be planned with" [ "$status" = 0 ]
check "who was measured to be fast has the layers" \
    [ "$(value "$out" '["clusters"][0]["device_names"]')" = "['phone']" ]

# --- batteries: the last device is empty
cli run 'clusters=[{name: a, devices: [{name: phone, battery_j: 1, battery_reserve_j: 1}]}]' run.name=empty
check "an empty cluster ends a run" [ "$status" = 1 ]
check "an empty cluster is named" \
    has "$err" "round 2: a: none of its 1 devices is present (1 under the reserve of the battery)"

# --- the run that the rest is compared with
cli run run.name=whole --format json
check "a good run" [ "$status" = 0 ]
whole=$(value "$out" '["params_sha256"]')
run=$(value "$out" '["dir"]')

# --- a learning rate that destroys the model (that a checkpoint survives it: node.test_run), and
# settings that may not change under a run
refused 1 "is not finite" "round 1" "train.lr" -- run train.lr=1e9 train.clip=0 --quiet
before=$(cd "$run/checkpoint-4" && sha256sum -- * | sha256sum)
refused 2 "a resumed run keeps its settings" "lr: 1000000000" -- run --resume "$run" train.lr=1e9
refused 2 "a resumed run keeps its settings" "rounds: 9" -- run --resume "$run" fed.rounds=9
check "the last checkpoint is untouched" \
    [ "$before" = "$(cd "$run/checkpoint-4" && sha256sum -- * | sha256sum)" ]
cli ckpt verify "$run/checkpoint-4"
check "the last checkpoint is whole" [ "$status" = 0 ]

# --- a checkpoint that was cut: nobody reads on
model=cut/checkpoint-4/model.safetensors
for size in 0 5 200 -1; do
    rm -rf cut
    cp -r "$run" cut
    truncate -s "$size" $model
    refused 1 "model.safetensors" -- ckpt verify cut/checkpoint-4
    refused 1 "model.safetensors" -- ckpt inspect cut/checkpoint-4
    refused 1 "model.safetensors" -- predict cut/checkpoint-4 --text red
    refused 1 "model.safetensors" -- eval cut/checkpoint-4 --data data/heldout.tsv
done
printf '\377' | dd of=$model bs=1 seek=3000 conv=notrunc status=none
cp "$run/checkpoint-4/model.safetensors" $model
printf '\125' | dd of=$model bs=1 seek=3000 conv=notrunc status=none
refused 1 "the content of model.safetensors is not what the manifest says" -- ckpt verify cut/checkpoint-4
cli run --resume cut --format json
check "a resume takes the checkpoint before" has "$err" "checkpoint skipped: cut/checkpoint-4"
check "and ends with the same model" [ "$(value "$out" '["params_sha256"]')" = "$whole" ]
rm -rf cut/checkpoint-*
refused 1 "cut has no complete checkpoint" -- run --resume cut
refused 1 "no model.safetensors" -- predict cut --text red

# --- Ctrl-C
# start ARGS...: a run in the background, until it has started to train.
start() {
    : >.live.err
    "$bin" run --progress plain --format json "$@" >.live.out 2>.live.err </dev/null &
    run_pid=$!
    for _ in $(seq 600); do
        grep -q "$ready" .live.err && return
        sleep 0.05
    done
    check "a run starts within 30 s: $(cat .live.err)" false
}
finish() {
    wait "$run_pid"
    status=$?
    run_pid=
    out=$(cat .live.out)
    err=$(cat .live.err)
}
long=(train.local_steps=400 fed.rounds=6)
cli run "${long[@]}" run.name=long --format json
check "a longer run" [ "$status" = 0 ]
whole=$(value "$out" '["params_sha256"]')
ready='training  '
start "${long[@]}" run.name=stopped
kill -INT "$run_pid"
finish
check "Ctrl-C: status 130" [ "$status" = 130 ]
check "Ctrl-C ends early" [ "$(value "$out" '["rounds"]')" -lt 6 ]
stopped=$(value "$out" '["dir"]')
cli ckpt verify "$(value "$out" '["checkpoint"]')"
check "Ctrl-C leaves a whole checkpoint" [ "$status" = 0 ]
cli run --resume "$stopped" --format json
check "the run goes on" [ "$status" = 0 ]
check "a stop changes no bit" [ "$(value "$out" '["params_sha256"]')" = "$whole" ]

# --- two processes on one run, and Ctrl-C twice
start train.local_steps=1000000 run.name=busy
busy=$(ls -d runs/busy-*)
refused 1 "$busy" "another process is working on it" -- run --resume "$busy"
refused 1 "$busy" "another process is working on it" -- runs rm "$busy"
check "the run that is there goes on" kill -0 "$run_pid"
cli runs list --format json
check "it is listed as running" has "$(value "$out" '["runs"][0]["status"]')" running
kill -INT "$run_pid"
sleep 0.2
kill -INT "$run_pid"
finish
check "Ctrl-C twice: status 130" [ "$status" = 130 ]
check "Ctrl-C twice is told" has "$err" "left at once"
cli runs list --format json
check "a run that was left is listed as killed" has "$(value "$out" '["runs"][0]["status"]')" killed
cli runs rm "$busy"
check "a run that nobody works on can be removed" [ ! -e "$busy" ]

# --- a folder that may not be used
refused 1 "config.yaml" -- run run.dir=config.yaml
mkdir -m 700 closed
if [ "$(id -u)" != 0 ]; then
    chmod 0 closed
    refused 1 "closed" "Permission denied" -- run run.dir=closed
elif command -v setpriv >/dev/null; then
    chmod 755 "$dir"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$bin" run run.dir=closed >.out 2>.err
    status=$?
    err=$(cat .err)
    check "a closed folder: status 1" [ "$status" = 1 ]
    check "a closed folder is named: $err" has "$err" "closed"
    check "a closed folder has its reason" has "$err" "Permission denied"
fi

# --- a full disk: training goes on while it can; what was saved stays, and is enough to go on from
mkdir disk
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=400k none disk 2>/dev/null; then
    mounted=$dir/disk
    cli run run.dir=disk fed.rounds=6
    check "a full disk: status 1" [ "$status" = 1 ]
    check "a full disk is told" has "$err" "No space left on device"
    check "training goes on as long as it can" has "$err" "was not saved, training goes on"
    check "the last line names what is left" has "$(printf '%s\n' "$err" | tail -n 1)" "the last saved state is disk/"
    full=$(ls -d disk/run-*)
    for c in "$full"/checkpoint-*; do
        cli ckpt verify "$c"
        check "$c is whole" [ "$status" = 0 ]
    done
    check "failed saves do not fill the disk" [ -z "$(ls -d "$full"/*.tmp 2>/dev/null)" ]
    mount -o remount,size=4m disk
    cli run --resume "$full" --format json
    check "with room the run goes on" [ "$status" = 0 ]
    resumed=$(value "$out" '["params_sha256"]')
    cli run fed.rounds=6 --format json
    check "and ends with the same model" [ "$(value "$out" '["params_sha256"]')" = "$resumed" ]
    umount disk
    mount -t tmpfs -o size=12k none disk
    cli run run.dir=disk fed.rounds=2
    check "no room for anything: status 1" [ "$status" = 1 ]
    check "no room for anything is told" has "$err" "No space left on device"
    umount disk
    mounted=
fi

echo "bad input: $checks checks passed"
