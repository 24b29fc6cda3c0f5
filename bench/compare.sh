#!/usr/bin/env bash
# Accuracy of `collapipe run` beside plain PyTorch: the same shards, the same samples per step in every
# round and cluster (the policy chose them), the same schedule; only the random numbers differ.
# Finished parts are kept in FOLDER and not done again.
# usage: compare.sh COLLAPIPE FOLDER [TEMPLATE [SEED...]]     (classify, seeds 1 2 3)
# needs: wordnet-base, python3-torch, python3-sklearn
set -euo pipefail
bin=$(realpath "$1"); mkdir -p "$2"; folder=$(realpath "$2"); template=${3:-classify}
shift $(($# > 3 ? 3 : $#))
[ $# -gt 0 ] || set -- 1 2 3
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
project=$folder/$template
[ -e "$project/config.yaml" ] || "$bin" new "$project" --template "$template"

value() { # of one option, as the run resolved it
    "$bin" run "$project" --print-config | sed -nE "s/^ *$1: *([^ #]+).*/\1/p" | head -1
}
rounds=$(value rounds); steps=$(value local_steps)
warmup=$($python -c "import math; print(math.ceil($(value warmup) * $rounds * $steps))")

for seed in "$@"; do
    ours=$folder/$template-$seed.json; theirs=$folder/$template-$seed.peer
    if [ ! -s "$ours" ]; then
        "$bin" run "$project" --format json --progress off seed="$seed" > "$ours.part"
        mv "$ours.part" "$ours"
    fi
    run=$project/runs/$($python -c "import json; print(json.load(open('$ours'))['run_id'])")
    if [ ! -s "$theirs" ]; then
        $python "$here/peer_fedavg.py" "$project/data" --run "$run" --rounds "$rounds" \
            --local-steps "$steps" --lr "$(value lr)" --warmup "$warmup" \
            --dropout "$(value dropout)" --init-std "$(value init_std)" --seed "$seed" --eval-max 1000 --json > "$theirs.part"
        mv "$theirs.part" "$theirs"
    fi
done
[ -s "$folder/bow" ] || $python "$here/bow.py" "$project/data" > "$folder/bow"

$python - "$folder" "$template" "$@" <<'PY'
import json, statistics, sys
folder, template, seeds = sys.argv[1], sys.argv[2], sys.argv[3:]
ours, theirs = [], []
print(f"{template}: accuracy on the held-out split\nseed  collapipe  PyTorch  samples")
for seed in seeds:
    a = json.load(open(f"{folder}/{template}-{seed}.json"))
    b = [json.loads(line) for line in open(f"{folder}/{template}-{seed}.peer")][-1]
    ours.append(100 * a["eval"]["accuracy"]); theirs.append(100 * b["accuracy"])
    print(f"{seed:>4}  {ours[-1]:8.2f}%  {theirs[-1]:6.2f}%  {b['samples']:7}   ({a['wall_s']:.0f} s)")
print(f"mean  {statistics.mean(ours):8.2f}%  {statistics.mean(theirs):6.2f}%   difference "
      f"{statistics.mean(ours) - statistics.mean(theirs):+.2f} points")
print(open(f"{folder}/bow").read().strip())
PY
