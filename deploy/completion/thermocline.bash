# Completion for bash: subcommands, options and their values, asked of the programs themselves.

_thermocline_help() {  # COMMAND [SUBCOMMAND]
  "$@" --help 2>/dev/null
}

# The values of option $1 in the help on standard input: "--spec off|sync" gives "off sync".
_thermocline_values() {
  sed -nE "s/^ +(-[a-z],)?$1 ([a-z0-9_-]+(\|[a-z0-9_-]+)+).*/\2/p" | tr '|' ' '
}

_thermocline() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} sub='' help values
  if [[ $1 == *thermocline && $COMP_CWORD -gt 1 ]]; then sub=${COMP_WORDS[1]}; fi
  help=$(_thermocline_help "$1" $sub)
  COMPREPLY=()
  if [[ $1 == *thermocline && $COMP_CWORD -eq 1 && $word != -* ]]; then
    COMPREPLY=($(compgen -W "$(sed -n '/^Subcommands:/,$p' <<<"$help" | sed -nE 's/^  ([a-z-]+) .*/\1/p')" -- "$word"))
    return
  fi
  if [[ $previous == -* ]]; then
    values=$(_thermocline_values "$previous" <<<"$help")
    if [ -n "$values" ]; then
      COMPREPLY=($(compgen -W "$values" -- "$word"))
      return
    fi
  fi
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(sed -nE 's/^ +(-[a-z],)?(--[a-z0-9-]+).*/\2/p' <<<"$help")" -- "$word"))
    return
  fi
  # A path; a built-in model where a command wants a model.
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$word"))
  if [[ -n $sub && $COMP_CWORD -eq 2 ]]; then COMPREPLY+=($(compgen -W 'tidepool tidepool-draft tidepool-experts' -- "$word")); fi
}

complete -F _thermocline thermocline thermoclined thermocline-load
