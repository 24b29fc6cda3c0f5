#!/usr/bin/env bash
# The command line as a user meets it: help, mistakes, output formats, Ctrl-C, resume, replay.
# usage: test_cli.sh path/to/collapipe
set -u
. "$(dirname "$0")/lib.sh"
bin=$(realpath "$1")
dir=$(mktemp -d)
run_pid=
cleanup() {
    [ -n "$run_pid" ] && kill -KILL "$run_pid" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir" || exit 1
unset NO_COLOR POSIXLY_CORRECT
esc=$(printf '\033')
tiny=(model.layers=2 model.width=32 model.heads=2 model.ffn=64 train.local_steps=20 'changes=[]'
    eval.max_samples=200)

lacks() { [[ $1 != *"$2"* ]]; }
columns_at_most() { # of UTF-8 text
    python3 -c 'import sys; n = int(sys.argv[1]); sys.exit(any(len(l) > n for l in sys.argv[2].splitlines()))' "$1" "$2"
}
one_line() { [ "$(printf '%s\n' "$1" | wc -l)" = 1 ]; }
# json TEXT EXPRESSION: TEXT is one document d without NaN, and the expression holds for it.
json() {
    python3 -c '
import json, sys
def bad(x): raise ValueError(x)
d = json.loads(sys.argv[1], parse_constant=bad)
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$1" "$2"
}
value() { python3 -c 'import json, sys; print(eval("d" + sys.argv[2], {"d": json.loads(sys.argv[1])}))' "$1" "$2"; }

# --- help and version
cli --help
check "help succeeds" [ "$status" = 0 ]
check "help fits 24 lines" [ "$(printf '%s\n' "$out" | wc -l)" -le 23 ]
check "help fits 80 columns" columns_at_most 80 "$out"
for c in new run plan simulate predict eval ckpt runs replay bench version; do
    check "help names $c" has "$out" "  $c "
    cli "$c" --help
    check "$c --help succeeds" [ "$status" = 0 ]
    check "$c --help starts with its usage" has "$out" "usage: collapipe $c"
    check "$c --help names the options" has "$out" "--format FORMAT"
    check "$c --help says nothing else" [ -z "$err" ]
    cli help "$c"
    check "help $c is the same" has "$out" "usage: collapipe $c"
    cli --help
done
for c in reproduce server control device translate dashboard profile key doctor trace; do
    check "help lists no $c" lacks "$out" "  $c "
done
cli run --help
check "run --help tells every option" has "$out" "train.micro_batch"
check "run --help tells the policies" has "$out" "gpipe-uniform"
cli version
check "version" has "$out" "collapipe "
cli --version
check "--version" has "$out" "collapipe "
cli version --format json
check "version as JSON" json "$out" '"version" in d'

# --- mistakes: one sentence, status 2
mistake() { # TEXT ARGS...
    local text=$1
    shift
    cli "$@"
    check "'$*' is refused" [ "$status" = 2 ]
    check "'$*' has one sentence" one_line "$err"
    check "'$*' says so" has "$err" "$text"
    check "'$*' prints no result" [ -z "$out" ]
}
cli
check "no command: status 2" [ "$status" = 2 ]
check "no command: help on standard error" has "$err" "usage: collapipe"
check "no command: no result" [ -z "$out" ]
mistake "unknown command 'rnu'; did you mean 'run'?" rnu
mistake "unknown command 'reproduce'" reproduce
mistake "unknown command 'simulat'; did you mean 'simulate'?" simulat
mistake "--rounds 0: it must be a whole number from 1 to 1000000" simulate --rounds 0
mistake "there is nothing to measure called 'smi', did you mean sim" bench smi
mistake "unknown command 'xyzzy'; see collapipe --help" xyzzy
mistake "unknown command 'convert'" ckpt convert x
mistake "unknown command 'plot'" runs plot x
mistake "did you mean 'show'?" runs shwo x
mistake "did you mean '--resume'?" run --resme x
mistake "did you mean '--format'?" plan --fromat=json
mistake "unknown option '-z'" run -z
mistake "--resume needs RUN" run --resume
mistake "--quiet takes no value" run --quiet=1
mistake "it must be text or json; did you mean json?" run --format jsn
mistake "it must be auto, plain or off" run --progress x
mistake "it must be a whole number" predict m --text a --top 0
mistake "the name of the new folder is missing" new
mistake "MODEL" predict
mistake "--text" predict m
mistake "--text" predict m --text a --file b
mistake "--data FILE is missing" eval m
mistake "collapipe runs list names them" runs show
mistake "takes no run" runs list x
mistake "usage: collapipe version" version now
mistake "options come after the command" --format text run
mistake "collapipe new DIR" run
mistake "collapipe new DIR" plan
mistake "no.yaml" run no.yaml
cli run --format json --nonsense
check "a mistake as JSON" json "$out" 'd["error"]["status"] == 2 and "nonsense" in d["error"]["message"]'
cli run --nonsense --format json
check "a mistake before --format" json "$out" 'd["error"]["kind"] == "E_USAGE"'
cli nonsense --format json
check "no command as JSON" json "$out" 'd["error"]["status"] == 2'
cli predict nomodel --text a --format json
check "no model: status 1" [ "$status" = 1 ]
check "no model as JSON" json "$out" 'd["error"]["kind"] == "E_CKPT"'
"$bin" version >/dev/full 2>.err
check "a full disk is an error" [ $? = 1 ]
check "a full disk is told" has "$(cat .err)" "cannot write the result"

# --- new
cli new --list --format json
check "templates as JSON" json "$out" '{"classify", "classify-full", "simulate"} <= {t["name"] for t in d["templates"]}'
cli new demo --format json
check "new succeeds" [ "$status" = 0 ]
check "new as JSON" json "$out" 'd["samples"] > 100 and d["heldout"] > 10 and "config.yaml" in d["files"]'
check "new makes config.yaml" [ -f demo/config.yaml ]
before=$(sha256sum demo/config.yaml)
mistake "not empty" new demo
check "new changes nothing in a full folder" [ "$before" = "$(sha256sum demo/config.yaml)" ]
mistake "did you mean classify" new other --template clasify
check "a wrong template makes no folder" [ ! -e other ]
cli new world --template simulate --format json
check "a template without data" json "$out" 'd["files"] == ["config.yaml"]'
check "which has only a configuration" [ "$(ls world)" = config.yaml ]
cli plan world --format json
check "it can be planned" [ "$status" = 0 ]
check "with section 15's world" json "$out" \
    'len(d["clusters"]) == 4 and all(sum(c["segments"]) == 12 for c in d["clusters"])'

# --- configuration
mistake "did you mean 'train.lr'?" run demo train.lrr=1
mistake "cannot both be the configuration" run demo fed.rounds 3
cd demo || exit 1
cli run --print-config train.lr=0.5
check "print-config" [ "$status" = 0 ]
check "print-config tells the value and its origin" has "$out" "lr: 0.5  # command line"
check "print-config tells the file" has "$out" "config.yaml:"
cli run --print-config --format json
check "print-config as JSON" json "$out" '"layers: 4" in d["config_yaml"]'
COLLAPIPE_TRAIN_LR=0.25 cli run --print-config
check "print-config tells the environment" has "$out" "lr: 0.25  # environment COLLAPIPE_TRAIN_LR"
cli run --dry-run
check "dry-run" [ "$status" = 0 ]
check "dry-run starts nothing" [ ! -e runs ]
cli run --dry-run --format json
check "dry-run as JSON" json "$out" 'd["ok"] is True'

# --- plan
cli plan
check "plan" [ "$status" = 0 ]
check "plan fits 100 columns" columns_at_most 100 "$out"
check "plan has the clusters" has "$out" "cluster home"
check "plan has no escapes" lacks "$out" "$esc"
cli plan --explain
for text in "bubble " "fill and drain" "why these layers" "memory: needs " "what binds" \
    "is the slowest cluster, by" "convergence queue: gamma" "next best plan" \
    "what would change the cut" "other policies"; do
    check "explain says '$text'" has "$out" "$text"
done
check "explain draws links" has "$out" "      :"
check "explain fits 100 columns" columns_at_most 100 "$out"
check "drawings fit 80 columns where there is no terminal" columns_at_most 80 "$(printf '%s\n' "$out" | grep '[|:][.0-9<>x]\+$')"
cli plan --explain clusters=1x5 'changes=[]' pipe.order=1f1b train.micro_batches=16 --policy gpipe-uniform model.layers=5
check "a plan with something better beside it" has "$out" "a better plan is next to this one"
cli plan --explain model.layers=30
check "no plan" [ "$status" = 1 ]
check "no plan: what binds" has "$err" "no way to place 30 layers"
check "no plan: what to do" has "$err" "times the memory on every device, or a model of at most"
check "no plan: no result" [ -z "$out" ]
cli plan --format json --policy gpipe-uniform
check "plan as JSON" json "$out" 'd["policy"] == "gpipe-uniform" and d["latency_s"] > 0 and len(d["clusters"]) == 2
    and all(sum(c["segments"]) == 4 and len(c["slots"]) == len(c["segments"]) + 2 for c in d["clusters"])
    and isinstance(d["binding"], list) and "explain" not in d'
cli plan --format json --explain
check "explain as JSON" json "$out" '[w["what"] for w in d["explain"]["what_if"]][-1] == "speed of the edge server"
    and d["explain"]["next"]["objective"] > 0.99 * d["objective"] and len(d["explain"]["clusters"]) == 2
    and all(abs(sum(c["bubble"][k][j] for k in c["bubble"]) / c["step_s"] - 1) < 1e-9
        for c in d["clusters"] for j in range(len(c["slots"])))'
cli plan --color always
check "colour when it is asked for" has "$out" "$esc["
mistake "there is no policy 'dsda'" plan --policy dsda

# --- a run
cli run "${tiny[@]}" fed.rounds=6 run.name=whole
check "run" [ "$status" = 0 ]
check "run tells rounds" has "$out" "round 6/6  loss "
check "run says what is modelled" has "$out" "latency and energy are modelled"
check "run compares" has "$out" "gpipe-uniform"
check "run tells what to do next" has "$out" "collapipe predict runs/whole-"
check "run fits 100 columns" columns_at_most 100 "$out"
check "run has no escapes" lacks "$out$err" "$esc"
cli run "${tiny[@]}" fed.rounds=6 run.name=json --format json --color never
check "run as JSON" json "$out" 'd["rounds"] == 6 and len(d["train_loss"]) == 6 and 0 <= d["eval"]["accuracy"] <= 1
    and d["interrupted"] is False and len(d["params_sha256"]) == 64
    and all(k in d for k in "run_id policy steps model_time_s model_energy_j wall_s bubble_pct checkpoint".split())
    and all(n["mem_peak_bytes"] == n["mem_model_bytes"] for c in d["clusters"] for n in c["nodes"])'
check "with JSON the rounds go to standard error" has "$err" "round 6/6  loss "
whole=$(value "$out" '["params_sha256"]')
cli run "${tiny[@]}" fed.rounds=1 run.name=quiet --quiet
check "quiet keeps standard error empty" [ -z "$err" ]
check "quiet keeps the result" has "$out" "sha256"
check "quiet tells no rounds" lacks "$out" "round 1/1"
cli run "${tiny[@]}" fed.rounds=2 run.name=plain --progress plain --format json
check "plain progress has no escapes" lacks "$err" "$esc"
cli run "${tiny[@]}" fed.rounds=2 run.name=off --progress off
check "progress off" [ -z "$err" ]
NO_COLOR=1 script -qec "'$bin' run ${tiny[*]} fed.rounds=2 run.name=tty --progress off" /dev/null >.tty </dev/null
check "NO_COLOR on a terminal" lacks "$(cat .tty)" "$esc"
TERM=xterm script -qec "'$bin' run ${tiny[*]} fed.rounds=2 run.name=tty" /dev/null >.tty </dev/null
check "a terminal gets a live line" has "$(cat .tty)" "$esc[K"
check "the live line has a bar and an end" has "$(cat .tty)" "ETA "

# --- simulate: in a folder without a configuration, so that it is about its own world
mkdir sim && cd sim || exit 1
two=(simulate clusters=2x3 --policy gpipe-uniform,greedy --rounds 3 --seeds 2)
cli "${two[@]}" --format json --out rounds.csv
check "simulate succeeds" [ "$status" = 0 ]
check "simulate as JSON" json "$out" '[p["name"] for p in d["policies"]] == ["gpipe-uniform", "greedy"]
    and all({"latency_s", "energy_ratio_max", "gamma_mean", "compute_efficiency", "mem_peak_bytes",
             "mem_full_bytes", "queue_mean", "rounds_per_s"} <= set(p) for p in d["policies"])
    and all(p["latency_s"]["mean"] > 0 and p["latency_s"]["ci95"] >= 0 for p in d["policies"])'
check "every round is on record" [ "$(wc -l <rounds.csv)" = 13 ]
figures() { # without what depends on the machine
    python3 -c 'import json, sys; d = json.loads(sys.argv[1]); print([{k: v for k, v in p.items()
        if k != "rounds_per_s"} for p in d["policies"]])' "$1"
}
many=$(figures "$out")
cli "${two[@]}" --format json --threads 1
check "figures do not depend on threads" [ "$(figures "$out")" = "$many" ]
cli "${two[@]}"
check "simulate as a table" has "$out" "E/budget"
check "simulate fits 100 columns" columns_at_most 100 "$out"
check "simulate has no escapes" lacks "$out$err" "$esc"
cli "${two[@]}" --quiet
check "simulate --quiet keeps standard error empty" [ -z "$err" ]
cli simulate clusters=2x3 --policy fedavg --rounds 2 --seeds 1
check "rounds without a plan are no failure" [ "$status" = 0 ]
check "rounds without a plan are told" has "$out" "fedavg found no plan for "
cli simulate clusters=2x3 --policy greedy --rounds 5 --seeds 2 plan.measured=true
check "simulate with what was observed" has "$out" "error of stages"
check "it fits 100 columns" columns_at_most 100 "$out"
cli simulate --policy greedy --rounds 3 --seeds 2 \
    'clusters=[{name: a, arrivals: 90, cu: {mem_mib: 4096}, devices: [{name: x, mem_mib: 9000}]}]'
check "simulate with samples that arrive" has "$out" "age when trained"
cli simulate --print-config
check "simulate tells where its world is from" has "$out" "template simulate"
mistake "there is no policy 'gredy', did you mean greedy" simulate --policy gpipe-uniform,gredy
mistake "greedy is named twice" simulate --policy greedy,greedy
mistake "must end in .csv or .jsonl" simulate --out rounds.txt
cli simulate nothere.yaml --format json
check "a configuration that is not there: status 2" [ "$status" = 2 ]
cli bench plan --clusters 1 --devices 2 --layers 3 --worlds 2
check "bench plan fits 100 columns" columns_at_most 100 "$out"
check "bench plan measures both kinds and the program" has "$out" "program"
cli bench plan --clusters 1 --devices 2 --layers 3 --worlds 2 --format json
check "bench plan as JSON: each policy cold and warm, and the program" \
    [ "$(grep -o '"plan_us"' <<< "$out" | wc -l)" = 5 ]
mistake "bench sim has its own sizes" bench sim --worlds 2
cli bench sim
check "bench fits 100 columns" columns_at_most 100 "$out"
check "bench says what it measured" has "$out" "device rounds/s"
"$bin" simulate --rounds 1000000 --seeds 9 --policy gpipe-uniform --progress plain --format json \
    >.sim.out 2>.sim.err </dev/null &
run_pid=$!
for _ in $(seq 600); do
    grep -q 'round ' .sim.err && break
    sleep 0.05
done
kill -INT "$run_pid"
wait "$run_pid"
status=$?
run_pid=
out=$(cat .sim.out)
err=$(cat .sim.err)
check "Ctrl-C in a simulation: status 130" [ "$status" = 130 ]
check "Ctrl-C in a simulation says what happens" has "$err" "to report what is finished"
check "Ctrl-C in a simulation prints the document" json "$out" 'd["interrupted"] is True'
cd .. || exit 1

# --- Ctrl-C
# start ARGS...: a run in the background, until it tells that it has started.
start() {
    : >.live.err
    "$bin" run "${tiny[@]}" "$@" --format json >.live.out 2>.live.err </dev/null &
    run_pid=$!
    for _ in $(seq 1200); do
        grep -q 'modelled for the' .live.err && return
        sleep 0.05
    done
    check "a run starts within a minute" false
}
finish() {
    wait "$run_pid"
    status=$?
    run_pid=
    out=$(cat .live.out)
    err=$(cat .live.err)
}
start fed.rounds=6 run.name=stopped
kill -INT "$run_pid"
finish
check "Ctrl-C: status 130" [ "$status" = 130 ]
check "Ctrl-C says what happens" has "$err" "then saving; press Ctrl-C again to leave now (round "
check "Ctrl-C still prints the document" json "$out" 'd["interrupted"] is True and 1 <= d["rounds"] < 6'
check "Ctrl-C leaves a checkpoint" [ -d "$(value "$out" '["checkpoint"]')" ]
stopped=$(value "$out" '["dir"]')
cli run --resume "$stopped" --format json
check "resume ends the run" [ "$status" = 0 ]
check "resume has all rounds" json "$out" 'd["rounds"] == 6 and len(d["train_loss"]) == 6'
check "a stop and a resume change no bit" [ "$(value "$out" '["params_sha256"]')" = "$whole" ]
mistake "is complete" run --resume "$stopped"
cli runs show "$stopped" --format json
check "a resume that is refused changes no record" json "$out" 'd["status"] == "done"'
start fed.rounds=9 train.local_steps=20000 run.name=left
kill -INT "$run_pid"
sleep 0.3
check "the first Ctrl-C ends nothing at once" kill -INT "$run_pid"
finish
check "the second Ctrl-C: status 130" [ "$status" = 130 ]
check "the second Ctrl-C is told" has "$err" "left at once"
cli runs list --dir "$dir/demo/runs"
check "runs list after it" has "$out" "left-"
mistake "no run folder" run --resume nowhere

# --- using the result
cli predict "$stopped" --text "a bird" --text "" --format json
check "predict" json "$out" 'len(d["predictions"]) == 2 and all(abs(sum(p["scores"].values()) - 1) < 1e-4
    and p["score"] == max(p["scores"].values()) for p in d["predictions"])'
cli predict "$stopped" --text "${esc}[31mred" --top 3
check "predict prints no escapes of a text" lacks "$out" "$esc"
printf 'one\n\nthree' >.texts
"$bin" predict "$stopped" --file - --format json <.texts >.out
check "predict reads standard input" json "$(cat .out)" '[p["text"] for p in d["predictions"]] == ["one", "", "three"]'
printf 'a\0b\n' | "$bin" predict "$stopped" --file - >/dev/null 2>.err
check "NUL bytes are refused" has "$(cat .err)" "NUL byte"
cli eval "$stopped" --data data/heldout.tsv --format json
check "eval" json "$out" '0 <= d["metrics"]["accuracy"] <= 1 and d["samples"] > 100'
cli eval "$stopped" --data nofile.tsv
check "eval without a file" [ "$status" = 1 ]
cli ckpt inspect "$stopped" --format json
check "inspect" json "$out" 'sum(__import__("math").prod(t["shape"]) for t in d["tensors"]) == d["params"]'
cli ckpt verify "$stopped" --format json
check "verify" json "$out" 'd["ok"] is True'
cli replay "$stopped" --format json
check "replay succeeds" [ "$status" = 0 ]
check "replay is equal bit for bit" json "$out" 'd["equal"] is True and d["params_sha256"] == d["replay_sha256"]'
cp -r "$stopped" runs/other-seed
sed -i 's/^seed: 1$/seed: 2/' runs/other-seed/config.yaml
cli replay runs/other-seed --format json
check "a replay with another seed is told to differ" json "$out" 'd["equal"] is False'
check "and has status 1" [ "$status" = 1 ]
rm -r runs/other-seed
cli runs list --format json
check "runs list" json "$out" 'any(r["run_id"].startswith("whole-") and r["status"] == "done" for r in d["runs"])'
cli runs list
check "runs list fits 100 columns" columns_at_most 100 "$out"
cli runs show "$stopped"
check "runs show" has "$out" "accuracy"
cli runs show whole --format json
check "runs show by the beginning of a name" json "$out" 'd["run_id"].startswith("whole-") and len(d["rounds"]) == 6'
cli runs rm whole
check "runs rm" has "$out" "removed whole-"
check "runs rm removes the folder" [ -z "$(ls -d runs/whole-* 2>/dev/null)" ]
mistake "no run 'whole'" runs show whole

echo "cli: $checks checks passed"
