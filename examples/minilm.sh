#!/bin/sh
# Attention on the queries, keys and values of a real model (examples/data), dense and packed, with
# and without a causal mask, each checked against its double-precision truth.
#
#   examples/minilm.sh PATH/TO/fa4 [OPTIONS OF fa4 run, e.g. --device cuda:0]
#
# Prints error, bound, time and speed of the four runs; exits with the status of the first that fails.
set -eu
if [ $# -lt 1 ]; then
  echo "usage: $0 PATH/TO/fa4 [OPTIONS OF fa4 run]" >&2
  exit 2
fi
fa4=$1
shift
data=$(dirname "$0")/data
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

# attend FILE TRUTH OPTIONS...: TRUTH is "" or "_causal", the ending of the truth's tensor names.
attend() {
  file=$data/$1 truth=$2
  shift 2
  echo "== $(basename "$file" .safetensors)$truth"
  "$fa4" run --q "$file:q" --k "$file:k" --v "$file:v" \
    --out "$results/result.safetensors:out" --lse "$results/result.safetensors:lse" \
    --expect "$file:out$truth" --expect-lse "$file:lse$truth" "$@"
}

packed=$data/minilm_packed.safetensors:cu_seqlens
attend minilm_dense.safetensors "" "$@"
attend minilm_dense.safetensors _causal --causal "$@"
attend minilm_packed.safetensors "" --cu-seqlens-q "$packed" "$@"
attend minilm_packed.safetensors _causal --causal --cu-seqlens-q "$packed" "$@"
