"""The shell that interprets the commands of simulated containers."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_shell import process, run

from setpoint.node.runtime.container_behavior import runs_forever, startup_output
from setpoint.node.runtime.files import Files, Mount, Volume
from setpoint.node.runtime.shell.interpreter import run_line
from setpoint.node.runtime.shell.session import Session, Streams
from setpoint.node.runtime.shell.syntax import ShellSyntaxError, is_incomplete, parse


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("exit 3", 3, ""),
        ("true && echo yes || echo no", 0, "yes\n"),
        ("false && echo yes || echo no", 0, "no\n"),
        ("! false", 0, ""),
        ("echo a; echo -n b; echo 'c  d' \"e\"f", 0, "a\nbc  d ef\n"),
        ('X=1; Y="$X 2"; echo $Y ${Z:-z} ${X:+set} ${#Y} $((X + 2 * 3))', 0, "1 2 z set 3 7\n"),
        ("for i in 1 2 3; do echo $i; done", 0, "1\n2\n3\n"),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && continue; echo $i; done", 0, "1\n3\n"),
        ("until false; do break; done; echo out", 0, "out\n"),
        ("if [ -f /x ]; then echo a; elif test 1 -eq 1; then echo b; else echo c; fi", 0, "b\n"),
        ("case $HOME in /r*) echo root;; *) echo other;; esac", 0, "root\n"),
        (
            "echo hello > /tmp/f; echo more >> /tmp/f; cat /tmp/f | wc -l; rm /tmp/f; cat /tmp/f",
            1,
            "2\ncat: can't open '/tmp/f': No such file or directory\n",
        ),
        ("echo $(echo inner; echo two)", 0, "inner two\n"),
        ("f() { echo got $1; return 4; }; f x; echo $?", 0, "got x\n4\n"),
        ("set -e; false; echo never", 1, ""),
        ("printf '%s-%d\\n' a 1 b 2", 0, "a-1\nb-2\n"),
        ("cat <<EOF\nhi $HOSTNAME\nEOF\necho after", 0, "hi host\nafter\n"),
        ("X=1; (X=2; exit 3); echo $? $X", 0, "3 1\n"),
        ("echo one # not this\necho two", 0, "one\ntwo\n"),
        ("date +%s", 0, "0\n"),
        ("echo to nowhere > /dev/null 2>&1", 0, ""),
        ("seq 2 4 | grep -v 3 | head -n 1", 0, "2\n"),
        ("seq 9 | grep -A 1 2; seq 9 | grep -A1 '^[26]'", 0, "2\n3\n2\n3\n--\n6\n7\n"),
        ("seq 5 | grep -C 1 3; seq 5 | grep -c -A 9 '[12]'", 0, "2\n3\n4\n2\n"),
        ("sleep 1 & sleep 2 & wait; date +%s", 0, "2\n"),
        ("timeout 5 sleep 100; echo $? $(date +%s)", 0, "143 5\n"),
        ("trap 'echo bye' EXIT; exit 2", 2, "bye\n"),
        ("sh -c 'exit 5' || echo $?", 0, "5\n"),
        ("echo 'unterminated", 2, "sh: syntax error: unterminated quoted string\n"),
        ("perl -Mbignum=bpi -wle 'print bpi(10)'", 0, "3.141592653\n"),
        ("X=my-orders-0; echo ${X##*-} ${X#*-} ${X%-*} ${X%%-*} ${#X} ${#}", 0, "0 orders-0 my-orders my 11 0\n"),
        (
            "eval 'echo (' || echo $?; trap 'echo \"' TERM; kill 1; echo on",
            0,
            'sh: syntax error: unexpected "("\n2\nsh: syntax error: unterminated quoted string\non\n',
        ),
        ("sleep nonsense", 1, "sleep: invalid time interval 'nonsense'\n"),
    ],
)
def test_scripts(script: str, code: int, output: str) -> None:
    assert run(script) == (code, output)


def test_a_process_advances_up_to_the_given_time() -> None:
    found = process(["sh", "-c", "echo a; sleep 10; echo b; sleep 20; exit 1"])
    found.advance(0)
    assert (found.output.text(), found.next_wakeup, found.exit_code) == ("a\n", 10, None)
    found.advance(29.9)
    assert [(line.at, line.text) for line in found.output.lines()] == [(0, "a\n"), (10, "b\n")]
    found.advance(100)
    assert (found.exit_code, found.ended_at, found.next_wakeup) == (1, 30, None)


def test_a_busy_loop_is_slowed_down() -> None:
    found = process(["sh", "-c", "while true; do :; done"])
    found.advance(3.5)
    assert found.exit_code is None and found.next_wakeup is not None and 3.5 < found.next_wakeup <= 5


def test_endless_output_is_bounded() -> None:
    found = process(["sh", "-c", "while true; do echo x; sleep 1; done"])
    found.advance(10_000)
    assert len(found.output.lines()) == 2000
    assert found.output.lines()[-1].at == 10_000


def test_a_trap_interrupts_wait() -> None:
    found = process(["sh", "-c", "trap 'echo caught; exit 9' TERM; sleep 999 & wait"])
    found.advance(5)
    assert found.signal("TERM", 5)
    assert (found.exit_code, found.output.text()) == (9, "caught\n")
    deaf = process(["sleep", "99"])
    assert not deaf.signal("TERM", 5)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'a b  c' | awk '{print $3, $1}'; echo x:y | awk -F: {'print $2'}", "c a\ny\n"),
        (
            "printf 'b\\na\\nb\\n' > f; sort f | uniq -c; sort -u f | wc -l; wc -l f | awk '{print $1}'",
            "      1 a\n      2 b\n2\n3\n",
        ),
        ("printf '10\\n9\\n' | sort -n; printf '9\\n10\\n' | sort -nr", "9\n10\n10\n9\n"),
        ("echo a,b,c | cut -d, -f2-; echo abcd | cut -c1,3", "b,c\nac\n"),
        ("echo abcdef > f; cut -c 3-4,1-2,2-3,9 f; cut -b -2,5- f; cut -c 4-2 f", "abcd\nabef\n\n"),
        ("echo abc | cut -c 1-999999999; echo abc | cut -f 999999999", "abc\nabc\n"),
        ("echo abc | cut -c - || true", "cut: expected a list of bytes, characters, or fields\n"),
        (
            "printf 'a\u2028b\\nc\\n' > f; head -n 1 f; tail -n 2 f; grep -c . f; sed s/c/d/ f",
            "a\u2028b\n" + "a\u2028b\nc\n2\na\u2028b\nd\n",
        ),
        ("echo Hello | tr a-z A-Z; echo 'a  b' | tr -s ' '; echo abc | tr -d b", "HELLO\na b\nac\n"),
        (
            "echo aXbX | sed s/X/-/; echo aXbX | sed 's|X|[&]|g'; echo k: v > f; sed -i 's/v/w/' f; cat f",
            "a-bX\na[X]b[X]\nk: w\n",
        ),
        ("expr 7 % 3; expr 2 '*' 5; expr 1 - 3; expr 0 + 0 || echo none", "1\n10\n-2\n0\nnone\n"),
        ("echo 1 > /tmp/a; mv /tmp/a /tmp/b; cp /tmp/b /opt/; cat /opt/b; test -f /tmp/a || echo gone", "1\ngone\n"),
        (
            "basename /a/b.txt .txt; dirname /a/b.txt; whoami; id -u; id",
            "b\n/a\nroot\n0\nuid=0(root) gid=0(root) groups=0(root)\n",
        ),
    ],
)
def test_text_programs(script: str, expected: str) -> None:
    assert run(script) == (0, expected)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("find /a", "/a\n/a/b\n/a/b/two.txt\n/a/one.txt\n"),
        ("cd /a; find . -name '*.txt' -type f", "./b/two.txt\n./one.txt\n"),
        (
            "find /a -maxdepth 1 -type d; find /a -mindepth 2; find /a/b -iname TWO*",
            "/a\n/a/b\n/a/b/two.txt\n/a/b/two.txt\n",
        ),
        ("find /a -name one.txt -delete; ls /a; find /a -empty", "b\n"),
        ("find /none || echo $?", "find: /none: No such file or directory\n1\n"),
        ("find /a -exec rm {} + || echo $?", "find: unrecognized: -exec\n1\n"),
        (
            "chmod 600 /a/one.txt; stat -c '%a %A %s %U %n %F' /a/one.txt /a",
            "600 -rw------- 4 root /a/one.txt regular file\n755 drwxr-xr-x 0 root /a directory\n",
        ),
        (
            "stat /a/one.txt",
            "  File: /a/one.txt\n  Size: 4               Blocks: 1          IO Block: 4096   regular file\n"
            "Access: (0644/-rw-r--r--)  Uid: (    0/    root)   Gid: (    0/    root)\n",
        ),
        ("stat /none || echo $?", "stat: can't stat '/none': No such file or directory\n1\n"),
        ("cd /a; realpath b/../one.txt; readlink -f b; readlink b || echo none", "/a/one.txt\n/a/b\nnone\n"),
        ("du -s /a; du /a", "16\t/a\n8\t/a/b\n16\t/a\n"),
        ("df | wc -l; df -h / | tail -n 1 | awk '{print $1, $2, $6}'", "2\noverlay 100.0G /\n"),
        ("ps", "PID   USER     TIME  COMMAND\n    1 root      0:00 ps\n"),
    ],
)
def test_file_programs(script: str, expected: str) -> None:
    files = Files(initial={"/a/one.txt": "one\n", "/a/b/two.txt": "two\n"})
    assert run(script, files=files) == (0, expected)


def test_files_of_volumes() -> None:
    shared: dict[str, str] = {}
    config = Volume({"a.txt": "A", "sub/b": "B"})
    files = Files(
        lambda: [
            Mount("/config", lambda: config),
            Mount("/data", lambda: Volume(shared)),
            Mount("/etc/one", lambda: config, "a.txt"),
            Mount("/part", lambda: config, "sub"),
        ]
    )
    assert run("cat /config/a.txt /config/sub/b /etc/one; ls /config /part; echo x > /data/f", files=files) == (
        0,
        "ABA/config:\na.txt\nsub\n\n/part:\nb\n",
    )
    assert shared == {"f": "x\n"}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["nginx", "-g", "daemon off;"], True),
        (["sh", "-c", "while true; do sleep 5; done"], True),
        (["sh", "-c", "sleep infinity"], True),
        (["sh", "-c", "while true; do date; sleep 5; done"], False),
        (["sleep", "5"], False),
        (["sh"], False),
        (["sh", "-c", "exit 1"], False),
    ],
)
def test_runs_forever(argv: list[str], expected: bool) -> None:
    assert runs_forever(argv) is expected


def test_startup_output() -> None:
    assert startup_output(["/agnhost", "pause"]) == "Paused\n"
    assert startup_output(["nginx"]) == ""
    assert runs_forever(["/agnhost", "netexec"])
    assert not runs_forever(["/agnhost", "mounttest"])


@given(st.text(alphabet="abc $(){};&|<>'\"\\\n#=*`0123456789[]!-", max_size=60))
def test_random_scripts_do_not_break_the_interpreter(text: str) -> None:
    with suppress(ShellSyntaxError):
        parse(text)
    code, _ = run(text, seconds=3)
    assert code is None or 0 <= code <= 255


@pytest.mark.parametrize(
    ("script", "code", "expected"),
    [
        (
            "dd if=/dev/zero of=/tmp/f bs=512 count=4; wc -c /tmp/f",
            0,
            "4+0 records in\n4+0 records out\n2048 bytes (2.0KB) copied, 0.000020 seconds, 100.0MB/s\n2048 /tmp/f\n",
        ),
        ("echo hello | dd of=/tmp/f status=none; cat /tmp/f", 0, "hello\n"),
        (
            "echo abcdef > /tmp/f; dd if=/tmp/f bs=2 skip=1 count=1 status=none; echo; "
            "printf X | dd of=/tmp/f bs=1 seek=2 conv=notrunc status=none; cat /tmp/f",
            0,
            "cd\nabXdef\n",
        ),
        ("dd if=/dev/urandom of=/tmp/f bs=100 count=1 status=none; wc -c /tmp/f", 0, "100 /tmp/f\n"),
        ("dd if=/none of=/tmp/f", 1, "dd: can't open '/none': No such file or directory\n"),
        (
            "dd if=/dev/zero of=/tmp/f bs=1M count=3 status=none; echo $?",
            0,
            "dd: error writing '/tmp/f': No space left on device\n1\n",
        ),
        ("dd what", 1, "dd: unrecognized operand 'what'\n"),
    ],
)
def test_dd_copies_blocks(script: str, code: int, expected: str) -> None:
    found, output = run(script)
    assert found == code
    if "urandom" in script:
        assert output.endswith(expected)
    else:
        assert output == expected


def test_programs_process_input_as_it_arrives() -> None:
    for argv in (["cat"], ["sh", "-c", "cat && echo over"], ["tee", "/tmp/f"]):
        found = process(argv)
        found.stdin_buffer.closed = False
        found.advance(1)
        assert found.waits_for_input and found.exit_code is None
        for text, shown in (("one\n", "one\n"), ("two", "one\ntwo")):
            found.stdin_buffer.text += text
            found.input_changed()
            found.advance(2)
            assert found.output.text() == shown and found.exit_code is None
        found.stdin_buffer.closed = True
        found.input_changed()
        found.advance(3)
        assert found.exit_code == 0
    assert process(["cat"]).exit_code is None


def test_tail_follows_a_file() -> None:
    writing = "(sleep 5; echo b >> /log; sleep 5; echo c > /log)"
    found = process(["sh", "-c", f"echo a > /log; {writing} & tail -n+1 -F /log"])
    found.advance(20)
    assert [(line.at, line.text) for line in found.output.lines()] == [(0, "a\n"), (6, "b\n"), (11, "c\n")]


# -- pipelines whose programs run concurrently --------------------------------------------------------------------------


def piped(text: str, files: Files | None = None, seconds: float = 100.0) -> tuple[str, float]:
    """Return the output of a line whose pipelines run concurrently, and the time when it ended."""
    time, alarm, out = 0.0, float("inf"), list[str]()

    def wake_after(after: float) -> None:
        nonlocal alarm
        alarm = min(alarm, time + after)

    session = Session(
        dict, files or Files(), "host", lambda: time, lambda run: 0, image_fully_known=True, wake_after=wake_after
    )
    running = run_line(session, text, Streams(out.append, out.append))
    while time < seconds:
        alarm = float("inf")
        try:
            pause = next(running)
        except StopIteration:
            break
        time = time + pause if pause >= 0 else alarm
    running.close()
    return "".join(out), time


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("seq 5 | head -2", "1\n2\n"),
        ("seq 5 | grep -v 3 | tr 1 9 | sort -r", "9\n5\n4\n2\n"),
        ("printf 'a\\nb' | while read x; do echo got $x; done; echo done", "got a\ngot b\ndone\n"),
        ("echo a b c | xargs -n 1 echo -", "- a\n- b\n- c\n"),
        ("seq 3 | sed s/2/two/ | awk '{print NR, $1}'", "1 1\n2 two\n3 3\n"),
        ("true | cat; echo none | grep x || echo no", "no\n"),
        ("seq 100000 | wc -l", "100000\n"),
        ("seq 9 | tee copy | head -1; cat copy | wc -l", "1\n9\n"),
        ("echo x | cat | cat | cat", "x\n"),
        ("! echo x | grep -q x; echo $?", "1\n"),
        ("seq 3 | grep -c .", "3\n"),
        ("grep x < empty; echo $?", "1\n"),
        ("cat missing | wc -l", "cat: can't open 'missing': No such file or directory\n0\n"),
    ],
)
def test_pipelines_give_the_same_output_concurrently(line: str, shown: str) -> None:
    files = Files()
    files.write("/empty", "")
    assert piped(line, files)[0] == shown


def test_output_arrives_while_the_first_program_runs() -> None:
    line = "while true; do echo tick; sleep 2; done | head -3"
    assert piped(line) == ("tick\ntick\ntick\n", 4.0)
    assert piped("(sleep 3; echo late) | (sleep 1; echo early; cat)") == ("early\nlate\n", 3.0)
    assert piped("sleep 5 | true")[1] == 5.0, "a program that writes nothing is not ended"


def test_wildcards() -> None:
    files = Files()
    for name in ("/a.yaml", "/b.yaml", "/c.txt", "/dir/d.yaml", "/.hidden"):
        files.write(name, name)
    assert piped("echo *.yaml", files)[0] == "a.yaml b.yaml\n"
    assert piped("echo '*.yaml' \"*\" \\*.yaml *.none", files)[0] == "*.yaml * *.yaml *.none\n"
    assert piped("echo */*.yaml /d?r/*", files)[0] == "dir/d.yaml /dir/d.yaml\n"
    assert piped("for f in [ab].yaml; do cat $f; echo; done", files)[0] == "/a.yaml\n/b.yaml\n"
    assert piped("x='*.txt'; echo $x \"$x\"", files)[0] == "c.txt *.txt\n"
    assert piped("echo .h*; [ a = a ] && echo ok; case x.y in *.y) echo y;; esac", files)[0] == ".hidden\nok\ny\n"


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("echo x", False),
        ("echo 'x", True),
        ('echo "x', True),
        ("for x in a b", True),
        ("for x in a; do echo $x", True),
        ("if true; then echo; fi", False),
        ("cat <<EOF", True),
        ("cat <<EOF\nx", True),
        ("cat <<EOF\nx\nEOF", False),
        ("cat > f <<'EOF'\nEOF\n", False),
        ("echo a |", True),
        ("echo a &&", True),
        ("echo a \\", True),
        ("echo a \\\\", False),
        ("echo $(ls", True),
        ("f() {", True),
        ("echo )", False),
        ("fi", False),
        ("", False),
    ],
)
def test_lines_that_another_line_may_complete(text: str, open_: bool) -> None:
    assert is_incomplete(text) == open_
