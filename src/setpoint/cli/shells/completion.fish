# fish completion for setpoint                              -*- shell-script -*-

function __setpoint_offers
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($words[1] __complete $words[2..-1] $current 2>/dev/null)
    set -l directive (string replace -r '^:' '' -- $found[-1])
    if test (count $found) -gt 1
        set -l before ''
        if string match -q -- '--*=*' $current
            set before (string replace -r '=.*' '=' -- $current)
        end
        for one in $found[1..-2]
            echo $before$one
        end
    else if test "$directive" != 4
        __fish_complete_path $current
    end
end

complete -c setpoint -e
complete -c setpoint -f -a '(__setpoint_offers)'
