"""Templates and paths that kubectl and we must fill in alike, on one object."""

from __future__ import annotations

OBJECT = {
    "apiVersion": "example.com/v1",
    "kind": "Sample",
    "metadata": {
        "name": "web-ü<1>",
        "namespace": "default",
        "labels": {"app": "web", "app.kubernetes.io/name": "web", "tier": "front"},
        "annotations": {"note": 'a "quoted" <b> & c\nsecond line\u2028', "empty": ""},
        "creationTimestamp": "2024-05-01T10:00:00Z",
    },
    "spec": {
        "replicas": 3,
        "items": [
            {"n": 1, "s": "one", "f": 1.5, "b": True, "ports": [{"port": 80, "name": "http"}, {"port": 443}]},
            {"n": 2, "s": "two", "f": 2.25, "b": False, "ports": []},
            {"n": 3, "s": "three", "z": None},
            {"n": -4, "s": "5", "m": {"k": "v"}},
        ],
        "nums": [0, 1, 2, 3, 4, 5, 6],
        "strs": ["a", "b", "c"],
        "mixed": [1, "a", None, 1.5, True, {"x": 1}, [1, [2]]],
        "empty": [],
        "none": {},
        "nil": None,
        "flag": True,
        "off": False,
        "large": 10000000.0,
        "half": 0.5,
        "tiny": 1e-7,
        "beyond": 12345678901234567890,
        "secret": "c2VjcmV0",
        "bytes": "//8=",
        "text": "quo\"te'\n\tend",
    },
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Ok"},
            {"type": "Progressing", "status": "False", "message": "waits"},
        ],
        "phase": "Running",
    },
}

# Wildcards and descents go through lists, or through maps of one key: kubectl goes through the others in any order.
PATHS = r"""
{.kind}
{ .kind }
{$.kind}/{@.metadata.name}
{.metadata.labels}
{.metadata.labels.app}
{.metadata.labels.app\.kubernetes\.io/name}
{.metadata['labels']['app']}
{['metadata.name']}
{.metadata.annotations}
{.metadata.annotations.empty}|
{.spec.items[0]}
{.spec.items[*].s}
{.spec.items[0,2].s}
{.spec.items[0]['n','s']}
{.spec.items[1:3].s}
{.spec.items[-1].s}
{.spec.items[-2:].s}
{.spec.items[:-1].n}
{.spec.items[::2].n}
{.spec.nums}
{.spec.nums[1:6:2]}
{.spec.nums[2:2]}
{.spec.nums[]}
{.spec.nums[?(@>3)]}
{.spec.nums[?(@<=2)]}
{.spec.nums[?(@!=3)]}
{.spec.items[?(@.n==2)].s}
{.spec.items[?(@.s=="three")]}
{.spec.items[?(@.s!='one')].n}
{.spec.items[?(@.b==true)].s}
{.spec.items[?(@.ports)].s}
{.spec.items[?(@.ports[0])].s}
{.spec.items[?(@.m.k=="v")].n}
{.spec.items[?(@.nope)].n}|
{.spec.items[?(@.nope=="x")].n}|
{.status.conditions[?(@.type=="Ready")].status}
{.status.conditions[?(@.status=='False')].message}
{range .spec.items[*]}{.s}{"\t"}{.n}{"\n"}{end}
{range .spec.items[*]}{.s}:{range .ports[*]}{.port},{end};{end}
{range .spec.items[?(@.n>1)]}[{.s}]{end}
{range .spec.empty[*]}never{end}after
{range .nope[*]}{.a}{range .b[*]}{.c}{end}{end}after
{range .spec.nums[:3]}{@} {end}
{.spec.items[*].ports[*].port}
{.spec.items..k}
{.spec.items[3].m..}
{.spec.items[0].ports..port}
{.spec.items[3].m.*}
{.spec.strs.*}
{.kind.*}
{.spec.mixed}
{.spec.mixed[*]}
{.spec.nil} {.spec.flag} {.spec.off} {.spec.half} {.spec.large} {.spec.tiny} {.spec.beyond}
{.spec.text}
{.nope}|{.spec.nope.deeper}|
{.}|
{"quoted"} {'single'} {"esc\t\"\\\x41\u00e9\101"}
{1} {-2} {2.50} {true} {false} {007}
{"{"}{"}"} plain text, [brackets] "quotes"
"""

BAD_PATHS = r"""
{.kind
{.kind[}
{.spec.nums[a]}
{.spec.nums[1:2:3:4]}
{.spec.nums[-]}
{.spec.nums[9]}
{.spec.nums[3:1]}
{.spec.nums[0:3:0]}
{.spec.nums[1:99]}
{.spec.flag[0]}
{.spec[0]}
{.spec.flag[?(@.x)]}
{.spec.nums[?(@=="a")]}
{.spec.nums[?(@<>1)]}
{.spec.nums[?(@>1]}
{.spec.nums[?(@>1)}
{.spec.items[?(@.ports[*].port==80)]}
{.spec.items[?(@.b<true)]}
{.spec.items[?(@.m==1)]}
{hello}
{end}
{range .spec.nums[*]}{@}{end}{end}
{*}
{........}
{"open}
{"\q"}
{1.2.3}
"""

TEMPLATES = r"""
{{.metadata.name}} {{.kind}} {{.spec.replicas}}
{{.nope}} {{.spec.nope.deeper}} {{.spec.nil}}
{{.metadata.labels}} {{.spec.items}} {{.spec.mixed}}
{{.spec.flag}} {{.spec.half}} {{.spec.large}} {{.spec.tiny}} {{.spec.beyond}}
{{range .spec.items}}{{.s}}={{.n}} {{end}}
{{range $i, $e := .spec.items}}{{$i}}:{{$e.s}} {{end}}
{{range $k, $v := .metadata.labels}}{{$k}}={{$v}};{{end}}
{{range .spec.empty}}x{{else}}none{{end}}{{range .spec.nope}}x{{else}}none{{end}}{{range .spec.none}}x{{end}}
{{range .spec.nums}}{{if eq . 3}}{{break}}{{end}}{{.}}{{end}}
{{range .spec.nums}}{{if eq . 3}}{{continue}}{{end}}{{.}}{{end}}
{{range $i, $x := .spec.strs}}{{if $i}}, {{end}}{{$x}}{{end}}
{{range .spec.items}}{{range .ports}}{{.port}} {{end}}{{end}}
{{range .spec.items}}{{if .b}}{{.s}}{{end}}{{end}}
{{range .spec.items}}{{$.kind}}/{{.s}} {{end}}
{{range 3}}{{.}}{{end}}
{{if .spec.flag}}yes{{else}}no{{end}} {{if .spec.off}}yes{{else}}no{{end}} {{if .spec.none}}yes{{else}}no{{end}}
{{if .nope}}a{{else if .spec.flag}}b{{else}}c{{end}}
{{if and .spec.flag (gt .spec.replicas 1)}}both{{end}} {{if or .nope .kind}}one{{end}} {{if not .nope}}none{{end}}
{{and 1 0 2}} {{or 0 "" "x"}} {{not true}} {{.kind | and .spec.flag}}
{{with .metadata}}{{.name}}{{end}} {{with .nope}}a{{else}}b{{end}} {{with .nope}}a{{else with .kind}}{{.}}{{end}}
{{$x := 5}}{{$x}}{{$x = 6}}{{$x}}{{if true}}{{$x := 7}}{{$x}}{{end}}{{$x}}{{if true}}{{$x = 8}}{{end}}{{$x}}
{{len .spec.items}} {{len .metadata.name}} {{len .metadata.labels}}
{{index .spec.nums 2}} {{index .metadata.labels "app.kubernetes.io/name"}} {{index .spec.items 0 "s"}}
{{index .metadata.labels "nope"}} {{(index .spec.items 0).s}} {{(index .status.conditions 0).type}}
{{slice .spec.nums 1 3}} {{slice .spec.strs 1}} {{slice .kind 0 2}}
{{print 1 2 "a" "b" 3 .spec.flag}} {{print .nope}} {{println 1 "a" 2}}
{{printf "%s-%d-%v-%t" .kind .spec.replicas .spec.flag true}}
{{printf "%5d|%-5d|%05d|%+d|%x|%X|%o|%b|%c|%q|%U" 42 42 42 42 255 255 8 5 65 65 65}}
{{printf "%10s|%-10s|%.2s|%q|%x" "right" "left" "trunc" "q\"q" "hi"}}
{{printf "%f %.2f %8.3f|%e %g %v %08.3f" 1.5 1.0 3.14159 1e7 1e7 1.0 3.14159}}
{{printf "%v %+v %#v %T" .spec.strs .metadata.labels .spec.strs .spec.strs}}
{{printf "%d %s" "a" 5}} {{printf "%d"}} {{printf "a" 1 "b"}} {{printf "%s" .nope}} {{printf "%v" .nope}}
{{printf "%s" .spec.nums}} {{printf "%d" .spec.strs}} {{printf "%[2]d %[1]d" 1 2}} {{printf "%*d" 5 1}}
{{printf "%-20s|%6.2f%%" .kind 99.5}}
{{html "<a href='x'>\"&"}} {{js "it's \"x\" <b>=\n"}} {{urlquery "a b&c=d/ü~"}}
{{eq 1 1}} {{eq "a" "b" "a"}} {{ne 1 2}} {{lt 1 2}} {{le 2 2}} {{gt "b" "a"}} {{ge 1.5 1.5}}
{{eq .nope "a"}} {{eq .nope nil}} {{eq .spec.nil nil}} {{eq .metadata nil}} {{ne .nope nil}}
{{eq .status.phase "Running" "Succeeded"}} {{gt (len .spec.items) 3}}
{{exists .metadata "name"}} {{exists .metadata "nope"}} {{exists .spec "nil"}} {{exists .spec.items 0 "s"}}
{{.spec.secret | base64decode}} {{base64decode "aGVsbG8="}} {{base64decode .spec.bytes}}
{{"abc" | len | printf "%d-%s" 5}} {{"abc" | printf "%s-%s" "x"}} {{.kind | printf "%s" | len}}
{{define "hello"}}hello {{.}}{{end}}{{template "hello" .kind}} {{template "hello"}}
{{block "in" .metadata}}in {{.name}}{{end}}!
{{define "all"}}{{if len .}}{{index . 0}}{{template "all" (slice . 1)}}{{end}}{{end}}{{template "all" .spec.nums}}
a  {{- " b " -}}  c {{- /* comment */ -}} d {{/* comment */}} e
{{- range .spec.items -}}{{.s}};{{- end -}}
{{`raw "q"`}} {{'a'}} {{0x1F}} {{0b11}} {{017}} {{1e3}} {{1.5e-3}} {{-5}} {{1_000}} {{"é\t\x41"}}
{{ (len .spec.nums) }} {{print (print 1 2) "x"}} {{"}}"}} {{"{{"}}
{{range $i, $c := .status.conditions}}{{$c.type}}={{$c.status}}{{if $c.message}} ({{$c.message}}){{end}} {{end}}
"""

BAD_TEMPLATES = r"""
{{.kind
{{.kind}
{{.spec.nil.foo}}
{{.kind.foo}}
{{with .kind}}{{.x}}{{end}}
{{range .spec.items}}{{.s.foo}}{{end}}
{{range .kind}}x{{end}}
{{break}}
{{$y}}
{{foo}}
{{len .nope}}
{{len 3}}
{{index .spec.nums 100}}
{{index .spec.nums "a"}}
{{index .metadata.labels 1}}
{{index .nope "a"}}
{{slice .spec.nums 3 1}}
{{eq 1 "a"}}
{{eq .metadata .metadata}}
{{lt true false}}
{{not 1 2}}
{{printf 5}}
{{base64decode "aGV$"}}
{{.nope | base64decode}}
{{.kind 1}}
{{1 | 2}}
{{nil}}
{{}}
{{"abc}}
{{1a}}
{{if .x}}x
{{end}}
{{if .a}}{{else}}{{else}}{{end}}
{{template "nope"}}
{{(index .spec.items 0).s.x}}
before {{.kind}} {{.kind.x}} after
{{/* open
{{ ( len .spec.nums }}
{{$a, $b := .spec}}
{{@}}
"""


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]
