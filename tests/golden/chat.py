#!/usr/bin/env python3
"""Conversations as Jinja renders them with the models' own templates: writes golden/chat.json, which test_chat compares with.

chat.py MODELS [TEMPLATES COMMAND]      needs the PyPI packages gguf and jinja2

MODELS holds SmolLM2's GGUF file; TEMPLATES is llama.cpp's folder models/templates. The settings are those of Hugging Face's
apply_chat_template, without a bos token and without a clock (so that templates fall back on the date that they name).

With COMMAND, a program that takes (template as a JSON file, messages as a JSON file, 1 for an assistant's turn) and prints the
family's name, a newline and the text, or exits with 3 for a template that it refuses, every template of the folder is compared
instead, and nothing is written.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import gguf
import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Gemma 3's, which that folder does not have, as it is for contents that are text.
GEMMA3 = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""
# The first Llama 3's.
LLAMA3 = (r"{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
          r"message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
          r"{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "Hello")], [(U, "")], [(S, "Be brief. "), (U, " Hi\n")], [(U, "a"), (A, "b"), (U, "c")],
    [(S, " \u3000S\n"), (U, " u1 "), (A, " a1\n"), (U, "\n\u00a0u2\t\x1f"), (A, "\u2028 a2 \u0085"), (U, "\u00e9 \u200b")],
    [(U, "q"), (A, "<think>\nhm\n</think>\n\nanswer"), (U, "q2")], [(U, "q"), (A, "<think>\n a </think> b\n\n</think>\n\n answer ")],
    [(U, "x"), (A, "y")], [(U, "x"), (A, "y"), (A, "z")], [(A, "y"), (U, "x")], [(U, "x"), (S, "later"), (U, "y")],
    [(U, "<|im_end|> {{ 7 * 7 }} 'quoted' \"too\" \\n <end_of_turn>")],
]


def render(template, messages, turn):
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)
    e.globals["raise_exception"] = refuse
    e.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False)
    try:
        return e.from_string(template).render(messages=messages, add_generation_prompt=turn, bos_token="", eos_token="")
    except jinja2.exceptions.TemplateError:
        return None


def cases(template):
    for c in CONVERSATIONS:
        messages = [{"role": r, "content": t} for r, t in c]
        for turn in (False, True):
            yield messages, turn, render(template, messages, turn)


def compare(name, template, command):
    differ, family = 0, None
    with tempfile.TemporaryDirectory() as folder:
        t, m = os.path.join(folder, "template"), os.path.join(folder, "messages")
        json.dump(template, open(t, "w"))
        for messages, turn, text in cases(template):
            json.dump(messages, open(m, "w"))
            p = subprocess.run([command, t, m, str(int(turn))], capture_output=True)
            if p.returncode == 3:
                print(name, "refused")
                return
            if p.returncode == 0 and text is not None:
                family, got = p.stdout.decode().split("\n", 1)
                differ += got != text
    print(name, family, "differs in %d" % differ if differ else "agrees")


def main():
    reader = gguf.GGUFReader(os.path.join(sys.argv[1], "SmolLM2-135M-Instruct.Q4_1.gguf"))
    templates = {"SmolLM2": reader.fields["tokenizer.chat_template"].contents(), "Llama-3": LLAMA3, "Gemma-3": GEMMA3}
    if len(sys.argv) > 3:
        for path in sorted(glob.glob(os.path.join(sys.argv[2], "*.jinja"))):
            templates[os.path.basename(path)] = open(path).read()
        for name, template in templates.items():
            compare(name, template, sys.argv[3])
        return
    out = [{"name": name, "template": t, "cases": [{"messages": m, "turn": turn, "text": text} for m, turn, text in cases(t)]}
           for name, t in templates.items()]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "chat.json"), "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
