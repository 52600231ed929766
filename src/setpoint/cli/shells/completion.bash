# bash completion for setpoint                              -*- shell-script -*-

__setpoint_complete() {
    local cur words directive line word program
    cur="${COMP_LINE:0:COMP_POINT}"
    # Bash takes words apart at = and :, which are parts of ours.
    read -r -a words <<< "${cur}"
    [[ "${cur}" == *[[:space:]] ]] && words+=("")
    cur="${words[-1]}"
    COMPREPLY=()
    # By the name that was typed, which may be an alias of ours; what is no plain name is not run.
    program="${words[0]}"
    [[ "${program}" =~ ^[A-Za-z0-9_./~+-]+$ ]] || program=setpoint
    while IFS='' read -r line; do
        if [[ "${line}" == :* ]]; then
            directive="${line#:}"
            continue
        fi
        word="${line%%$'\t'*}"
        [[ "${word}" == "${cur#--*=}"* || "${word}" == "${cur}"* ]] && COMPREPLY+=("${word}")
    done < <(eval "${program} __complete$(printf ' %q' "${words[@]:1}")" 2>/dev/null)
    # What stands before the last : or = is on the line already.
    if [[ "${cur}" == *:* && "${COMP_WORDBREAKS}" == *:* ]]; then
        local before="${cur%"${cur##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"${before}"}")
    fi
    (( (directive & 2) )) && compopt -o nospace 2>/dev/null
    (( (directive & 4) )) && compopt +o default 2>/dev/null
    return 0
}

complete -o default -F __setpoint_complete setpoint
