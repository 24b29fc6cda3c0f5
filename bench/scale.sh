#!/usr/bin/env bash
# Time and memory of simulated rounds against the number of clusters, as the table of
# docs/experiments.md. One thread; CPU time, so that a busy machine matters little.
# usage: scale.sh path/to/collapipe SECONDS POLICY...      (rows end where one takes longer)
set -eu
bin=$(realpath "$1")
limit=$2
shift 2
exec python3 - "$bin" "$limit" "$@" <<'PY'
import json, os, resource, subprocess, sys, tempfile

binary, limit, policies = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
os.chdir(tempfile.gettempdir())  # where no config.yaml is meant


def measure(policy, clusters, rounds):
    """The document of one simulation, and its largest memory in MiB; None if it takes too long."""
    read, write = os.pipe()
    if os.fork() == 0:  # ru_maxrss of children is that of the largest so far: one child per child
        command = [binary, "simulate", f"clusters={clusters}x8", "--policy", policy, "--rounds",
                   str(rounds), "--seeds", "1", "--threads", "1", "--progress", "off", "--format",
                   "json"]
        try:
            out = subprocess.run(command, capture_output=True, timeout=limit, check=True).stdout
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            os.write(write, json.dumps([json.loads(out)["policies"][0], peak]).encode())
        except subprocess.TimeoutExpired:
            pass
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as result:
        text = result.read()
    os.wait()
    return json.loads(text) if text else None


print("| policy | clusters | devices | rounds | ms a round | device-rounds/s | memory, MiB |")
print("|---|---:|---:|---:|---:|---:|---:|")
for policy in policies:
    for clusters in (1, 10, 100, 1000, 10000):
        rounds = 3 if policy.startswith("dssda") else max(20, 2000 // clusters)
        measured = measure(policy, clusters, rounds)
        if not measured:
            break
        figures, peak = measured
        ms = 1e3 / figures["rounds_per_s"]
        print(f"| {policy} | {clusters:,} | {8 * clusters:,} | {figures['rounds']:,} |"
              f" {ms:,.{3 if ms < 1 else 1}f} | {8e3 * clusters / ms:,.0f} | {peak:,.0f} |",
              flush=True)
PY
