"""What a short script can make a simulated shell hold or do at once is bounded: it runs in the server's process."""

from __future__ import annotations

import tracemalloc

import pytest
from simulated_shell import run

BIG = "x=a; for i in $(seq 1 19); do x=$x$x; done; "
"""Sets a variable of half a MiB."""
MANY = "$x" * 5_000
TOO_LARGE = "sh: a word of more than 2 MiB\n"
TOO_MANY = "sh: Argument list too long\n"


@pytest.mark.parametrize(
    ("script", "status", "printed"),
    [
        (f'y="{MANY}"', 2, TOO_LARGE),
        (f"case {MANY} in a) ;; esac", 2, TOO_LARGE),
        (f"cat <<E\n{MANY}\nE\n", 2, TOO_LARGE),
        ("y=$x$x; echo $(echo $y)$(echo $y)$(echo $y)", 2, TOO_LARGE),
        (f"echo {'$x ' * 5_000}", 126, TOO_MANY),
        (f"for i in {'$x ' * 5_000}; do :; done", 126, TOO_MANY),
        (f"export {' '.join(f'A{number}=$x' for number in range(5_000))}", 126, TOO_MANY),
        ("f() { :; }; f $(seq 1 40000)", 126, "sh: f: Argument list too long\n"),
        ("[ $(seq 1 40000) ]", 126, "sh: [: Argument list too long\n"),
        (f"echo $x | xargs -I{{}} echo {'{}' * 5_000}", 1, "xargs: argument list too long\n"),
        ("seq 1 12000 | xargs echo | wc -l", 0, "3\n"),
        ('echo $x | sed "s/a/$x/g"', 1, "sed: more than 8 MiB of output\n"),
        (f"echo $x | awk '{{print {','.join(['$0'] * 5_000)}}}'", 1, "awk: more than 8 MiB of output\n"),
        ('printf "$x%s" $(seq 1 10000)', 1, "printf: more than 8 MiB of output\n"),
        (f"echo $x > f; cat {'f ' * 5_000}", 1, "cat: more than 8 MiB of files\n"),
        (f"echo $x > f; wc {'f ' * 5_000}", 1, "wc: more than 8 MiB of files\n"),
        (f"echo $x > f; tar c {'f ' * 5_000}", 2, "tar: the archive is too large for a simulated container\n"),
        ("seq 1 100000 > f; awk '{print $1}' f f", 1, "awk: more than 100000 lines\n"),
    ],
)
def test_what_is_made_at_once_is_bounded(script: str, status: int, printed: str) -> None:
    tracemalloc.start()
    try:
        outcome = run(BIG + script)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (outcome[0], outcome[1][-len(printed) :]) == (status, printed)
    assert most < 256 << 20


def test_the_length_of_an_arithmetic_expression_is_no_problem() -> None:
    assert run(f"echo $(({'1+' * 20_000}1))") == (0, "20001\n")
    assert run("echo $((2*(3+4)-6/2%2)) $((-(1))) $((!0)) $((1==1&&2<1))")[1] == "13 -1 1 0\n"
