#!/usr/bin/env bash
# For whoever has a B200 or B300: checks the Blackwell kernels, measures what the budget tool assumes,
# measures speed beside cuDNN and the original, sweeps the tuning rows, and writes a report to send back.
#
#   tools/first_b200_run.sh [--device cuda:0] [--build DIR] [--out DIR] [--python COMMAND] [--dry-run | --rehearse]
#
# --build: where fa4 was built (build/release; tools/build.sh first). --out: the report's folder, made anew
# (first-b200-run). --python: one with torch, for the comparison with cuDNN, and with flash-attn-4 for that with the
# original; without torch that step is left out, without flash-attn-4 it measures cuDNN alone.
# --dry-run prints the commands and runs nothing. --rehearse runs every step small on emulated:b200.
# A step that fails is a line of the report; the rest runs. Exit status 1: a step failed.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
device=cuda:0 build=$root/build/release out=first-b200-run python=python3 mode=run

refuse() {
  echo "first_b200_run: $1" >&2
  exit 2
}
while (($# > 0)); do
  case $1 in
    --device | --build | --out | --python)
      (($# > 1)) || refuse "$1: has no value"
      declare "${1#--}=$2"
      shift 2
      ;;
    --dry-run)
      mode=dry
      shift
      ;;
    --rehearse)
      mode=rehearse device=emulated:b200
      shift
      ;;
    *) refuse "$1; accepted: --device, --build, --out, --python, --dry-run, --rehearse" ;;
  esac
done

fa4=$build/bin/fa4
report=$out/report.md
failed=0

# step NAME FILE COMMAND...: its standard output goes to FILE of the report's folder.
step() {
  local name=$1 file=$2
  shift 2
  if [ "$mode" = dry ]; then
    echo "$name: $* > $out/$file"
    return
  fi
  local began=$SECONDS status=0
  "$@" >"$out/$file" 2>"$out/$file.err" </dev/null || status=$?
  [ -s "$out/$file.err" ] || rm -f "$out/$file.err"
  if [ "$status" = 0 ]; then
    echo "| $name | passed | $((SECONDS - began)) s | [$file]($file) |" | tee -a "$report"
  else
    failed=1
    echo "| $name | FAILED ($status) | $((SECONDS - began)) s | [$file]($file), [$file.err]($file.err) |" | tee -a "$report"
  fi
}

left_out() {
  if [ "$mode" = dry ]; then echo "$1: left out: $2"; else echo "| $1 | left out: $2 | | |" | tee -a "$report"; fi
}

if [ "$mode" != dry ]; then
  [ -x "$fa4" ] || refuse "--build $build: has no bin/fa4; run tools/build.sh, or name a build folder"
  mkdir "$out" 2>/dev/null || refuse "--out $out: cannot be made, or is there already"
  {
    echo "# First run on $device"
    echo
    echo "$("$fa4" --version), commit $(git -C "$root" rev-parse HEAD 2>/dev/null), $(date -u +%Y-%m-%dT%H:%MZ)"
    echo
    echo "| step | result | time | output |"
    echo "|---|---|---|---|"
  } >"$report"
fi

if [ "$mode" = rehearse ]; then
  verify=(--batch 1 --heads-q 1 --seqlen-q 256)
  bench=(--batch 1 --heads-q 1 --seqlen 256 --rounds 1)
  forward_dims=128 backward_dims=128
  sweep=(--head-dim 64 --seqlen 256 --tokens 64 --rounds 1)
else
  verify=(--suite full --repeat 2)
  bench=(--seqlen "1024,2048,4096,8192,16384,32768" --dtype "bf16,f16" --rounds 7)
  forward_dims=64,96,128,256 backward_dims=64,96,128,256
  sweep=(--head-dim "64,96,128,192,256" --seqlen "2048,8192" --rounds 7)
fi
if [ "$mode" != rehearse ]; then
  step "the GPU" gpu.txt nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv
fi
step "devices" devices.json "$fa4" devices --json
step "results" verify.json "$fa4" verify --device "$device" "${verify[@]}" --json
step "gradients" verify_backward.json "$fa4" verify --device "$device" --direction backward "${verify[@]}" --json
if [ -x "$build/bin/fa4_measure_rates" ] || [ "$mode" = dry ]; then
  step "rates" rates.json "$build/bin/fa4_measure_rates" --device "$device"
  if [ "$mode" != rehearse ]; then
    step "rates beside the assumed" rates.txt "$python" "$root/tools/pipe_budget.py" --measured "$out/rates.json"
  fi
else
  left_out "rates" "no bin/fa4_measure_rates; cmake --build $build --target fa4_measure_rates"
fi
step "speed" bench.json "$fa4" bench forward --device "$device" --head-dim "$forward_dims" "${bench[@]}" --csv "$out/bench.csv" --json
step "speed, backward" bench_backward.json "$fa4" bench backward --device "$device" --head-dim "$backward_dims" "${bench[@]}" --csv "$out/bench_backward.csv" --json
if [ -x "$build/bin/fa4_sweep_sm100" ] || [ "$mode" = dry ]; then
  step "tuning rows" sweep.json "$build/bin/fa4_sweep_sm100" --device "$device" "${sweep[@]}"
else
  left_out "tuning rows" "no bin/fa4_sweep_sm100; cmake --build $build --target fa4_sweep_sm100"
fi
if [ "$mode" = rehearse ]; then
  left_out "peers" "an emulated device has no speed"
elif [ "$mode" = dry ] || "$python" -c 'import torch' 2>/dev/null; then
  step "peers" peers.txt env CUDA_VISIBLE_DEVICES="${device#cuda:}" "$python" "$root/bench/peers.py" --lib "$build/lib/libfa4.so" \
    --rows table,other --json "$out/peers.json" --markdown "$out/peers.md"
  step "peers, backward" peers_backward.txt env CUDA_VISIBLE_DEVICES="${device#cuda:}" "$python" "$root/bench/peers_backward.py" \
    --lib "$build/lib/libfa4.so" --deterministic --rows table,short --json "$out/peers_backward.json" --markdown "$out/peers_backward.md"
else
  left_out "peers" "$python has no torch; --python names another"
fi
[ "$mode" = dry ] || echo "Report: $report"
exit "$failed"
