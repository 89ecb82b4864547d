#!/usr/bin/env bash
# Man pages of the programs and of each subcommand, made of their --help.
#   deploy/man_pages.sh BIN_FOLDER MAN1_FOLDER [EMULATOR ...]
set -euo pipefail
bin=$1 out=$2
shift 2
emulator=("$@")
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# help2man knows sections by words of its own, and options by a dash; both --help and --version come through a script
# that also undoes what is CLI11's taste.
page() {  # NAME SUMMARY PROGRAM [SUBCOMMAND]
  local name=$1 summary=$2 program=$3 sub=${4:-}
  cat >"$work/$name" <<SCRIPT
#!/bin/sh
if [ "\$1" = --version ]; then
  ${emulator[*]:-} "$bin/$program" --version | sed 's/^[^ ]*/$name/'
else
  ${emulator[*]:-} "$bin/$program" $sub --help | sed -e 's/^Positionals:/Arguments:/' -e 's/^Subcommands:/Commands:/'
fi
SCRIPT
  chmod +x "$work/$name"
  printf '[SEE ALSO]\n%s\n\nThe documentation is in /usr/share/doc/thermocline.\n' "$see" >"$work/include"
  help2man --no-info --section=1 --name="$summary" --include="$work/include" --output="$out/$name.1" "$work/$name"
  sed -i 's/|/|\\:/g' "$out/$name.1"  # a list of names may break behind each
  gzip -9nf "$out/$name.1"
}

summaries() {  # of the subcommands: NAME SUMMARY
  "${emulator[@]}" "$bin/thermocline" --help | sed -n '/^Subcommands:/,$p' | sed -nE 's/^  ([a-z-]+) +(.+)$/\1 \2/p'
}

see='thermoclined(1), thermocline-load(1)'
page thermocline "run, inspect and measure language models" thermocline
see='thermocline(1)'
while read -r sub summary; do
  page "thermocline-$sub" "${summary,}" thermocline "$sub"
done < <(summaries)
if [ -x "$bin/thermoclined" ]; then page thermoclined "serve one language model over HTTP and gRPC" thermoclined; fi
if [ -x "$bin/thermocline-load" ]; then page thermocline-load "measure a server of language models under load" thermocline-load; fi
