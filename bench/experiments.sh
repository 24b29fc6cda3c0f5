#!/usr/bin/env bash
# The tables of docs/experiments.md on policies, V' and the speed of the edge server, as Markdown on
# standard output. Every part is a file in FOLDER, and what is there is not run again: an interrupted
# campaign goes on where it was. With one more argument, a share of the rounds and seeds is run.
# usage: experiments.sh path/to/collapipe FOLDER [quick]
set -eu
bin=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
size=${3:-full}
cd "$folder" # where no config.yaml is meant

# part NAME ROUNDS SEEDS POLICIES [key=value...]
part() {
    local name=$1 rounds=$2 seeds=$3 policies=$4
    shift 4
    if [ "$size" = quick ]; then
        rounds=$(((rounds + 4) / 5)) seeds=$(((seeds + 1) / 2))
    fi
    if [ ! -s "$name.json" ]; then
        echo "experiments: $name: $rounds rounds, $seeds seeds, $policies $*" >&2
        "$bin" simulate --policy "$policies" --rounds "$rounds" --seeds "$seeds" --progress off \
            --format json "$@" > "$name.part"
        mv "$name.part" "$name.json"
    fi
}

part policies 500 10 dssda,gpipe-uniform,pipeedge,greedy,random,fedavg,best-single,splitfed,latency-only
for v in 1 3 10 30 100; do
    part "v-$v" 500 5 dssda plan.v=$v
done
for gflops in 200 500 1000 2000 5000 10000; do
    part "server-$gflops" 100 5 dssda,dssda-x,splitfed,gpipe-uniform server.gflops=$gflops
done
part ablations 500 10 dssda,dssda-uniform,dssda-order,dssda-fixed-m,dssda-equal-band,dssda-equal-share,dssda-max-power
part beyond 500 10 dssda,dssda-x
part myopic 500 10 dssda,myopic

python3 - <<'PY'
import json, os

def load(name):
    return json.load(open(name + ".json")) if os.path.exists(name + ".json") else None


def interval(x, digits=0):
    return "-" if x is None or x["mean"] is None else f"{x['mean']:.{digits}f} ± {x['ci95'] or 0:.{digits}f}"

def gib(x):
    return "-" if not x else f"{x / 2**30:.2f}"


def number(x, form):
    return "-" if x is None else form.format(x)

def table(title, docs):
    docs = [d for d in docs if d]
    if not docs:
        return
    print(f"\n**{title}** ({docs[0]['rounds']} rounds, {docs[0]['seeds_done']} seeds)\n")
    print("| policy | latency, s | against dssda | E/budget, worst node | gamma | busy | memory, GiB | queues | no plan |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    seen = set()
    for d in docs:
        for p in d["policies"]:
            if p["name"] in seen:
                continue
            seen.add(p["name"])
            against = p["against_first"] or {}
            ratio = against.get("latency_ratio")
            print(f"| {p['name']} | {interval(p['latency_s'])} | {interval(ratio, 2) if ratio else '-'} | "
                  f"{number(p['energy_ratio_max'], '{:.2f}')} | {number(p['gamma_mean'], '{:.2f}')} | "
                  f"{number(p['compute_efficiency'], '{:.3f}')} | {gib(p['mem_peak_bytes'])} | "
                  f"{number(p['queue_mean'], '{:.1f}')} | {100 * p['infeasible_share']:.0f} % |")

table("Policies", [load("policies"), load("beyond"), load("myopic")])
table("Ablations", [load("ablations")])
print("\n| V' | latency, s | backlog, mean | E/budget, worst node | gamma |\n|---:|---:|---:|---:|---:|")
for v in (1, 3, 10, 30, 100):
    d = load(f"v-{v}")
    if not d:
        continue
    p = d["policies"][0]
    print(f"| {v} | {interval(p['latency_s'])} | {p['queue_mean']:.1f} | {p['energy_ratio_max']:.2f} | {p['gamma_mean']:.2f} |")
print("\n| edge server, TFLOP/s | dssda, s | dssda-x, s | splitfed, s | gpipe-uniform, s |\n|---:|---:|---:|---:|---:|")
for g in (200, 500, 1000, 2000, 5000, 10000):
    d = load(f"server-{g}")
    if not d:
        continue
    print(f"| {g / 1000:g} | " + " | ".join(interval(p["latency_s"]) for p in d["policies"]) + " |")
PY
