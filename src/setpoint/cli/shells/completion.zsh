#compdef setpoint
compdef _setpoint setpoint

_setpoint() {
    local -a offers
    local line word told directive=0 current="${words[CURRENT]}" program="${words[1]}"
    # By the name that was typed, which may be an alias of ours; what is no plain name is not run.
    [[ "${program}" =~ '^[A-Za-z0-9_./~+-]+$' ]] || program=setpoint
    while IFS='' read -r line; do
        if [[ "${line}" == :* ]]; then
            directive="${line#:}"
            continue
        fi
        word="${line%%$'\t'*}"
        told=""
        [[ "${line}" == *$'\t'* ]] && told="${line#*$'\t'}"
        word="${word//:/\\:}"
        offers+=("${word}${told:+:${told}}")
    done < <(eval "${program} __complete ${(@qq)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#offers} )); then
        [[ "${current}" == --*=* ]] && compset -P '--*='
        if (( directive & 2 )); then
            _describe -V 'setpoint' offers -S ''
        else
            _describe -V 'setpoint' offers
        fi
    elif (( ! (directive & 4) )); then
        _files
    fi
}

# Loaded by `source` as well as from a directory of functions.
if [ "$funcstack[1]" = "_setpoint" ]; then
    _setpoint
fi
