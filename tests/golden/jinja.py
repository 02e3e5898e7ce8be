#!/usr/bin/env python3
"""Templates as Jinja renders them: writes golden/jinja.json, and golden/jinja_real.json when the folder of real templates is given.

jinja.py [TEMPLATES]      needs the PyPI package jinja2

The environment is that of Hugging Face's apply_chat_template: an immutable sandbox with trim_blocks, lstrip_blocks, break and
continue, generation blocks, tojson by json.dumps, raise_exception, strftime_now (here with a clock that stands still, in UTC).

jinja.json holds small templates of our own and their texts. jinja_real.json holds conversations, and for each file of TEMPLATES (llama.cpp's
models/templates; tests/golden/templates.sh fetches it) the SHA-256 of the template and the first 16 digits of that of its rendering of each conversation, or null
where Jinja refuses: the templates are other people's works, so neither they nor their texts are here.
"""
import datetime
import glob
import hashlib
import json
import os
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1764504000  # 2025-11-30 12:00 UTC


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)

    def show(self, caller):
        return caller()


def environment():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return e


def render(template, context):
    try:
        return environment().from_string(template).render(**context)
    except Exception as error:  # what Python raises, of whatever kind, is a refusal
        render.why = "%s: %s" % (type(error).__name__, error)
        return None


def tool(name, description, properties, required):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": required}}}


TOOLS = [
    tool("get_weather", "The weather \u00fcber a <place> & \"now\".",
         {"city": {"type": "string", "description": "A city's name"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"}},
         ["city"]),
    tool("add", "Adds numbers.", {"a": {"type": "number", "description": "one"}, "b": {"type": "integer", "description": "two"},
                                  "more": {"type": "array", "items": {"type": "number"}, "description": "others"},
                                  "how": {"type": "object", "properties": {"exact": {"type": "boolean", "description": "exactly"}},
                                          "description": "how"}}, ["a", "b"]),
]


def call(name, arguments, number=0):
    return {"id": "call%05d" % number, "type": "function", "function": {"name": name, "arguments": arguments}}


def m(role, content, **more):
    return dict({"role": role, "content": content}, **more)


U, A, S, T = "user", "assistant", "system", "tool"
CALLED = [m(U, "Weather in Oslo?"), m(A, "", tool_calls=[call("get_weather", {"city": "Oslo", "unit": "C"})]),
          m(T, "{\"temp\": -3.5}", name="get_weather", tool_call_id="call00000")]
CONVERSATIONS = [
    [m(U, "Hello")],
    [m(S, "Be brief."), m(U, " Hi \n")],
    [m(U, "a"), m(A, "b"), m(U, "c")],
    [m(S, " \u3000S\n"), m(U, "u1 <b>&'\"</b>"), m(A, " a1\n"), m(U, "\n\u00a0u2\t"), m(A, "\u2028 a2 \u0085"), m(U, "\u00e9 \U0001f600 {{ 7 * 7 }}")],
    [m(U, "q"), m(A, "<think>\nhm\n</think>\n\nanswer"), m(U, "q2")],
    [m(U, "q"), m(A, "answer", reasoning_content="because"), m(U, "q2"), m(A, "last", reasoning_content="so")],
    [m(U, [{"type": "text", "text": "part one"}, {"type": "text", "text": " and two"}])],
    [m(U, ""), m(A, "")],
    [m(S, "sys"), m(S, "again"), m(U, "x")],
    [m("developer", "dev"), m(U, "x")],
    CALLED,
    CALLED + [m(A, "It is cold."), m(U, "Thanks")],
    [m(S, "Use tools."), m(U, "Both"), m(A, "Let me see.", tool_calls=[call("get_weather", {"city": "Troms\u00f8"}), call("add", {
        "a": 1, "b": 2.5, "more": [1, True, None], "how": {"exact": False}}, 1)]),
     m(T, "snow", name="get_weather", tool_call_id="call00000"), m(T, "3.5", name="add", tool_call_id="call00001")],
    [m(U, "As text"), m(A, None, tool_calls=[call("add", "{\"a\": 1, \"b\": 2}")]), m(T, "3", name="add", tool_call_id="call00000")],
]
SETTINGS = [
    {"add_generation_prompt": True}, {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": TOOLS}, {"add_generation_prompt": False, "tools": TOOLS[1:]},
    {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True, "tools": TOOLS[:1],
                                                               "reasoning_effort": "high"},
]


def contexts():
    base = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    return [dict(base, messages=c, **s) for c in CONVERSATIONS for s in SETTINGS]


# Templates of our own: (template, variables). What Jinja refuses is kept too: hone must refuse it.
D = {"a": 1, "b": [1, 2.5, "x"], "c": {"d": None, "e": True}, "items": "mine", "u": "\u00e9\n'\"", "s": " pad ", "n": 7, "f": 0.1}
X = dict(D=D, L=["b", "A", "c", "a"], R=[{"k": 1, "v": "x"}, {"k": 2}, {"k": 1, "v": None}], s="Hello World", t="  a\tb \n c ", none=None,
         html="<a href='x'>&\"</a>", big=1e300, small=1.5e-7, whole=3.0, i=-7, e="", uni="h\u00e9llo w\u00f6rld \u4f60\u597d")
E = """{{ D }}|{{ L }}|{{ none }}|{{ big }}|{{ small }}|{{ whole }}|{{ (1, 'a', ()) }}|{{ (1,) }}|{{ {} }}|{{ 1e16 }}|{{ 123456789.123 }}|{{ 1e22 }}|{{ 0.0001 }}|{{ -0.0 }}
{{ D|tojson }}|{{ D|tojson(indent=2) }}|{{ D|tojson(ensure_ascii=True) }}|{{ D|tojson(separators=(',', ':')) }}|{{ [big, small, whole, none, true, {}, []]|tojson }}
{{ {'b': 1, 'a': {'z': 1, 'y': 2}}|tojson(sort_keys=true) }}|{{ {1: 2, none: 3, true: 4}|tojson(indent=1) }}|{{ uni|tojson(true) }}|{{ html|tojson }}
{{ 1 + 2 * 3 ** 2 }}|{{ 7 // 2 }}|{{ i // 2 }}|{{ i % 3 }}|{{ 7 / 2 }}|{{ 2 ** -1 }}|{{ -7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 'a' * 3 }}|{{ 1 ~ 'x' ~ 2.0 ~ none }}|{{ [1] + [2] }}|{{ -2 ** 2 }}
{{ 1 < 2 < 3 }}|{{ 1 < 2 > 3 }}|{{ 'a' in 'abc' }}|{{ 'z' not in L }}|{{ 'a' in D }}|{{ 1 == 1.0 }}|{{ 1 == true }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ not 1 == 2 }}
{{ 'y' if false }}|{{ 'y' if false else 'n' }}|{{ 1 and 0 or 'x' }}|{{ none or [] or 'z' }}|{{ missing }}|{{ missing is defined }}|{{ D.zz is undefined }}|{{ D.items is defined }}|{{ D['items'] }}
{{ s[0] }}|{{ s[-1] }}|{{ s[1:4] }}|{{ s[::-1] }}|{{ uni[1:3] }}|{{ uni[-2:] }}|{{ L[1:] }}|{{ L[::-1] }}|{{ L[-3:-1] }}|{{ L[10:] }}|{{ L[::2] }}|{{ s[99] is defined }}|{{ L.0 }}|{{ (1,2,3)[:2] }}
{{ s.split() }}|{{ s.split('o') }}|{{ t.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ s.split('l')[-1] }}|{{ t.strip() }}|{{ s.strip('Hd') }}|{{ s.lstrip('He') }}|{{ s.rstrip('d') }}
{{ s.startswith('He') }}|{{ s.endswith(('x', 'ld')) }}|{{ s.replace('l', 'L') }}|{{ s.replace('l', 'L', 1) }}|{{ s.upper() }}|{{ s.lower() }}|{{ uni.upper() }}|{{ uni.title() }}|{{ 'they\\'re x-y'.title() }}|{{ 'abC dE'.capitalize() }}
{{ s.find('o') }}|{{ s.rfind('o') }}|{{ s.count('l') }}|{{ 'ab'.replace('', '-') }}|{{ ', '.join(L) }}|{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'x{}y{}'.format(1, 'z') }}|{{ '12'.isdigit() }}|{{ 'aB'.islower() }}|{{ 'abc'.removeprefix('a') }}
{{ D.get('a') }}|{{ D.get('q') }}|{{ D.get('q', 5) }}|{{ D.keys()|list }}|{{ D.values()|list|length }}|{% for k, v in D.items() %}{{ k }}={{ v }};{% endfor %}|{{ L.index('c') }}|{{ L.count('a') }}
{{ L|join(', ') }}|{{ L|first }}|{{ L|last }}|{{ L|length }}|{{ L|sort }}|{{ L|sort(reverse=true) }}|{{ L|sort(case_sensitive=true) }}|{{ L|reverse|list }}|{{ s|reverse }}|{{ ['a', 'A', 'b']|unique|list }}|{{ L|min }}|{{ [1, 3, 2]|max }}|{{ [1, 2.5]|sum }}
{{ R|map(attribute='v')|list }}|{{ R|map(attribute='v', default='-')|list }}|{{ R|selectattr('k', 'equalto', 1)|list }}|{{ R|rejectattr('v', 'defined')|list }}|{{ R|selectattr('v')|map(attribute='k')|list }}|{{ L|map('upper')|join }}|{{ [0, 1, 2]|select|list }}|{{ [0, 1, 2, 3]|select('odd')|list }}|{{ L|reject('in', ['a', 'b'])|list }}|{{ R|sort(attribute='k')|map(attribute='k')|list }}|{{ R|join(',', attribute='k') }}
{{ D|items|list|length }}|{{ {'b': 1, 'a': 2}|dictsort }}|{{ {'b': 1, 'A': 2}|dictsort(true) }}|{{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }}|{{ 'abc'|list }}|{{ D|list }}
{{ t|trim }}|{{ '--x-'|trim('-') }}|{{ s|upper }}|{{ s|lower }}|{{ 'foo bar-baz (qux'|title }}|{{ 'hELLO'|capitalize }}|{{ s|replace('o', '0') }}|{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb\\n\\nc'|indent(2, true) }}|{{ 'a\\nb\\n\\nc\\n'|indent('>', blank=true) }}
{{ missing|default('d') }}|{{ e|default('d') }}|{{ e|default('d', true) }}|{{ none|default('d', boolean=true) }}|{{ missing|length }}|{{ missing|list }}|{{ missing|join }}|{{ missing|upper }}|{{ missing|string }}
{{ '42'|int }}|{{ 'x'|int }}|{{ 'x'|int(9) }}|{{ 3.9|int }}|{{ '3.7'|int }}|{{ ' 5 '|int }}|{{ true|int }}|{{ '2.5'|float }}|{{ 'q'|float }}|{{ 7|float }}|{{ -3|abs }}|{{ 2.567|round(2) }}|{{ 2.5|round }}|{{ 5|string + '!' }}
{{ 1 is number }}|{{ true is number }}|{{ 1 is integer }}|{{ true is integer }}|{{ 1.0 is float }}|{{ s is string }}|{{ D is mapping }}|{{ L is sequence }}|{{ D is sequence }}|{{ s is iterable }}|{{ 1 is iterable }}|{{ none is none }}|{{ true is true }}|{{ 1 is true }}|{{ false is false }}|{{ 3 is odd }}|{{ 4 is even }}|{{ 9 is divisibleby 3 }}|{{ 1 is eq 1 }}|{{ 2 is gt(1) }}|{{ 1 is in [1] }}|{{ none is sameas none }}|{{ 'A' is upper }}|{{ missing is iterable }}|{{ missing is sequence }}|{{ 1 is not none }}|{{ range is callable }}
{{ range(3)|list }}|{{ range(1, 6, 2)|list }}|{{ range(5, 0, -2)|list }}|{{ dict(a=1, b=2) }}|{{ strftime_now('%Y-%m-%d %d %B') }}
{{ html|safe }}|{{ (html|safe) ~ '<' }}|{{ ('<'|safe) + '<&' }}|{{ '<' + ('<b>'|safe) }}|{{ "con" 'cat' "ed" }}|{{ 'tab\\tq\\x41\\u00e9\\U0001f600\\101\\q' }}|{{ 1_000 }}|{{ 1.5e3 }}|{{ 'a' 'b' if 1 }}
{{ {'a': {'b': 1}}.a.b }}|{{ [[1, 2], [3]][0][1] }}|{{ -1|abs }}|{{ (-1)|abs }}|{{ 'x' is string and 1 }}|{{ ['\\x7f', '\\u200b', '\\u00ad', "'", '"', "'\\""] }}|{{ '\\x7f\\x01\\b'|tojson }}
{{ True and False or None }}|{{ '%' }}|{{ 5 % 3 }}|{{ 1, 2 }}|{{ (1) }}|{{ not true }}|{{ not none is none }}|{{ 'a' if 1 else 'b' if 0 else 'c' }}|{{ missing == none }}|{{ missing == other }}|{{ 'x' in missing }}|{{ [1, 2, [3]] == [1, 2, [3]] }}|{{ {'a': 1} == {'a': 1.0} }}""".split("\n")
CASES = [(line, X) for line in E] + [
    # Blanks.
    ("  {% if true %}\n  x\n  {% endif %}\ny", {}), ("a {%- if true -%} \n b \n {%- endif %} c", {}), ("  {%+ if true %}\n x {% endif +%}\n y\n", {}),
    ("{# c #}\n  {# d #}\nx {# e -#}  \n y\n\n", {}), ("a\r\nb\rc\n", {}), ("{{ 'x' }}\n{{ 'y' -}}\n z {{- 'w' }}\n", {}), ("x {% raw %} {{ a }} {% b %} {% endraw %} y", {}),
    (" {%- raw -%}  {{ a }}  {%- endraw -%}  y", {}), ("{% set x = 1 %}  \n{{ x }}", {}), ("\u2003{%- set x = 1 -%}\u3000{{ x }}", {}), ("  {{ '  ' }}\n", {}), ("{%if 1%}a{%else%}b{%endif%}", {}),
    ("{% for x in [1,2] %}\n    {{ x }}\n  {% endfor %}\nend\n", {}), ("\n\n{% if 1 %}\n\n{% endif %}\n\n", {}), ("{{ {'a': {'b': 2}}['a']['b'] }}{{ {'a': {}} }}", {}),
    # Loops.
    ("{% for x in L %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }};{% endfor %}", X),
    ("{% for x in [] %}x{% else %}none{% endfor %}{% for x in missing %}x{% else %}none{% endfor %}", {}), ("{% for x in [1,2,3,4,5] if x is odd %}{{ x }}/{{ loop.length }} {% else %}no{% endfor %}", {}),
    ("{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", {}), ("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", {}),
    ("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", {}), ("{% set ns = namespace(n=0, l=[]) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.n }}{{ ns.l }}{{ ns.zz is defined }}", {}),
    ("{% for c in 'h\u00e9' %}{{ c }}.{% endfor %}{% for k in D %}{{ k }} {% endfor %}", X), ("{% for x in [1,2] %}{% for y in [3,4] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}{{ loop is defined }}", {}),
    ("{% for x in R|selectattr('v', 'defined') %}{{ loop.last }}{{ x.k }}{% endfor %}", X), ("{% if 0 %}a{% elif 1 %}b{% elif 2 %}c{% else %}d{% endif %}", {}), ("{% if x is defined and x is not none and x|length > 0 %}y{% else %}n{% endif %}", {"x": [1]}),
    # set, macros, blocks.
    ("{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}{% set x %}  <{{ a }}>\n{% endset %}[{{ x }}]{% set y | trim | upper %} q {% endset %}[{{ y }}]", {}),
    ("{% macro f(a, b='d', c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f() }}{{ f('x', c=none) }}", {}), ("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", {}),
    ("{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}", {}), ("{% macro f(x) %}({{ caller(x, 2) }}){% endmacro %}{% call(a, b) f(1) %}{{ a }}+{{ b }}{% endcall %}", {}), ("{% macro f() %}[{{ caller() }}]{{ caller is defined }}{% endmacro %}{% call f() %}in{% endcall %}", {}),
    ("{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", {}), ("{% macro f(a) %}{% set a = a ~ '!' %}{{ a }}{% endmacro %}{{ f(1) }}{{ a }}", {"a": 9}), ("{% filter upper %}abc{{ 1 }}{% endfilter %}{% filter replace('a', 'b')|trim %} a {% endfilter %}", {}), ("{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", {}),
    ("{% generation %}{% set q = 1 %}x{{ q }}{% endgeneration %}{{ q }}", {}), ("{% set f = 'a'.upper %}{{ f() }}", {}), ("{% macro a() %}x{% endmacro %}{% macro b() %}{{ a() }}y{% endmacro %}{{ b()|length }}{{ b() ~ 1 }}", {}), ("{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", {}), ("{{ true if messages[0].role == 'user' }}", {"messages": [{"role": "user"}]}),
    ("{% if a %}{% macro f() %}1{% endmacro %}{% else %}{% macro f() %}2{% endmacro %}{% endif %}{{ f() }}", {"a": 0}), ("{%- set it = L|map('lower') -%}{{ it|join }}{{ it|join }}", X), ("{% set x = range(3) %}{% for i in x %}{{ i }}{% endfor %}{% for i in x %}{{ i }}{% endfor %}{{ x|length }}", {}),
    # Refused by Jinja too.
    ("{{ missing.x }}", {}), ("{{ missing['x'] }}", {}), ("{{ missing() }}", {}), ("{{ missing + 1 }}", {}), ("{{ 1 + 'a' }}", {}), ("{{ 'a' + 1 }}", {}), ("{{ 1 / 0 }}", {}), ("{{ L.append(1) }}", X), ("{{ D.update(a=1) }}", X), ("{{ D.pop('a') }}", X), ("{{ 1|length }}", {}), ("{{ missing|tojson }}", {}), ("{{ x|nofilter }}", {}), ("{{ x is notest }}", {}),
    ("{% do x %}", {}), ("{% if 1 %}", {}), ("{% endif %}", {}), ("{{ 1 ", {}), ("{{ 'a }}", {}), ("{{ }}", {}), ("{% for x in 1 %}{% endfor %}", {}), ("{% break %}", {}), ("{{ raise_exception('no') }}", {}), ("{% set a.b = 1 %}", {"a": {}}), ("{{ range(1000000) }}", {}), ("{{ [1, 2] < ['a'] }}", {}), ("{{ 1 in 'a' }}", {}), ("{{ none.x.y }}", {}), ("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", {}),
    ("{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", {}), ("{% set a, b = [1] %}", {}), ("{% include 'x' %}", {}), ("{{ ''.__class__.__mro__ }}", {}), ("{{ a b }}", {}), ("{{ f(a=1, 2) }}", {}), ("{% else %}", {}), ("{{ 'a'.nope() }}", {}), ("{{ {[1]: 2} }}", {}), ("{{ [3, 'a']|sort }}", {}), ("{{ none|items|list }}", {}), ("{{ ']' ) }}", {}), ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", {}), ("{% for k, v in D %}{% endfor %}", X),
    ("{{ '5' * '5' }}", {}), ("{{ -'a' }}", {}), ("{{ x if }}", {}), ("{% raw %}x", {}), ("{# x", {}),
]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = [{"template": t, "context": c, "text": render(t, c)} for t, c in CASES]
    for one in out:
        if one["text"] is None and "-v" in sys.argv:
            print(one["template"], render.why)
    with open(os.path.join(here, "jinja.json"), "w") as f:
        json.dump({"now": NOW, "cases": out}, f, indent=0)
        f.write("\n")
    if len(sys.argv) < 2 or sys.argv[1] == "-v":
        return
    def digest(text):
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()
    all_contexts, files = contexts(), []
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jinja"))):
        template = open(path, newline="").read()
        texts = [digest(render(template, c)) for c in all_contexts]
        texts = [t and t[:16] for t in texts]
        files.append({"file": os.path.basename(path), "template": digest(template), "texts": texts})
    with open(os.path.join(here, "jinja_real.json"), "w") as f:
        f.write('{"now": %d, "contexts": [\n' % NOW + ",\n".join(map(json.dumps, all_contexts)))
        f.write('\n], "files": [\n' + ",\n".join(map(json.dumps, files)) + "\n]}\n")


if __name__ == "__main__":
    main()
