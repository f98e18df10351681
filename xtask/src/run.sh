#!/usr/bin/env bash
# Runs the programs of a bundle made by `cargo xtask gpu-bundle`. Call it from the repository root.
#
#   run.sh tests|benches|examples|all [NAME_FILTER] [-- ARGS...]
#
# Every program whose name contains NAME_FILTER gets ARGS. A GPU and NVRTC are required: a test that lacks one fails.
set -uo pipefail

usage() {
    sed -n '4,6s/^# \{0,3\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
case "${1:-}" in
    tests | benches | examples) kinds=("$1") ;;
    all) kinds=(tests examples benches) ;;
    *) usage ;;
esac
shift
filter=
if [ $# -gt 0 ] && [ "$1" != -- ]; then
    filter=$1
    shift
fi
if [ $# -gt 0 ]; then
    [ "$1" = -- ] || usage
    shift
fi

scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
export POSTLUDE_REQUIRE_GPU=1 POSTLUDE_REQUIRE_NVRTC=1
# cargo would set this: tests find their files from here.
export CARGO_MANIFEST_DIR=$PWD
export POSTLUDE_CACHE_DIR=${POSTLUDE_CACHE_DIR:-$scratch/kernel-cache}
export CRITERION_HOME=${CRITERION_HOME:-$scratch/criterion}

summary=()
failed=0
for kind in "${kinds[@]}"; do
    # Benchmarks only measure when told to; cargo does the same. Tests that need a GPU are ignored elsewhere.
    case $kind in
        tests) first=(--include-ignored) ;;
        benches) first=(--bench) ;;
        *) first=() ;;
    esac
    for program in "$here/$kind"/*; do
        name=${program##*/}
        if [ ! -f "$program" ] || [[ "$name" != *"$filter"* ]]; then continue; fi
        [ -x "$program" ] || chmod +x "$program"
        printf '\n== %s/%s\n' "$kind" "$name"
        start=$SECONDS
        if "$program" "${first[@]}" "$@" </dev/null; then
            verdict=ok
        else
            verdict="FAILED (exit status $?)"
            failed=$((failed + 1))
        fi
        summary+=("$(printf '%-40s %4d s  %s' "$kind/$name" $((SECONDS - start)) "$verdict")")
    done
done

if [ ${#summary[@]} -eq 0 ]; then
    printf 'run.sh: no program fits\n' >&2
    exit 2
fi
printf '\n'
printf '%s\n' "${summary[@]}"
printf '%d run, %d failed\n' ${#summary[@]} "$failed"
[ "$failed" -eq 0 ]
