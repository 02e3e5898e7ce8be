#!/bin/sh
# --tools and --chat-template-file: what the model reads is what the template makes of them; what cannot be right is refused before a model
# is opened, and what a template does not take is an error.
. "$(dirname "$0")/script.sh"
"$hone" synth smollm2-135m F16 "$tmp/m.gguf" --layers 2 --width 64 --vocab 400 >"$tmp/out" 2>&1
cd "$tmp"
cat >template <<'END'
{% if tools %}[TOOLS]{% for t in tools %}{{ t | tojson }}{% endfor %}
[/TOOLS]{% endif %}
{% for m in messages %}
<{{ m.role }}>{{ m.content }}</>
{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}
END
cat >tools.json <<'END'
[{"type": "function", "function": {"name": "get_weather", "description": "Now.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
END
prompt() { # options of run: what the model reads
    "$hone" run -m m.gguf --temp 0 -n 2 -o json "$@" >run.json 2>err || { cat err; fail "run $*"; }
    ids=$(tr -d ' \n' <run.json | sed -n 's/.*"prompt_tokens":\(\[[0-9,]*\]\).*/\1/p')
    "$hone" detokenize -m m.gguf "$ids"
}
prompt --chat-template-file template --tools tools.json -p 'In Oslo?' >got
printf '%s' '[TOOLS]{"type": "function", "function": {"name": "get_weather", "description": "Now.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}[/TOOLS]<user>In Oslo?</>
<assistant>' >want
[ "$(cat got)" = "$(cat want)" ] || fail "with tools the model reads: $(cat got)"
[ "$(prompt --chat-template-file template -p 'In Oslo?')" = '<user>In Oslo?</>
<assistant>' ] || fail "without tools the model reads: $(cat got)"

# Behind a saved conversation with its own tools; others are refused.
"$hone" run -m m.gguf -n 2 --temp 0 --chat-template-file template --tools tools.json -p one --save-session s >out 2>&1 || fail "$(cat out)"
expect 0 'stopped by' "$hone" run -m m.gguf -n 2 --chat-template-file template -p two --load-session s
expect 0 'stopped by' "$hone" run -m m.gguf -n 2 --chat-template-file template --tools tools.json -p two --load-session s
sed s/weather/time/ tools.json >others.json
expect 2 'others than' "$hone" run -m m.gguf -n 2 --chat-template-file template --tools others.json -p two --load-session s
printf 'one\ntwo\n' | "$hone" chat -m m.gguf -n 2 --chat-template-file template --tools tools.json >out 2>&1 || fail "$(cat out)"

# Refused, before a model is opened where that can be.
bad() { # pattern, text of the file
    printf '%s' "$2" >bad.json
    expect 3 "$1" "$hone" run -m /nowhere.gguf -p x --chat-template-file template --tools bad.json
}
bad 'bad.json:1:.*no JSON' '[{'
bad 'bad.json:1:.*no JSON' '[{"type": "function", "type": "function"}]'
bad 'an array of 1' '{"type": "function"}'
bad 'an array of 1' '[]'
bad 'bad.json: tool 1 has a function without a name' '[{"type": "function", "function": {}}]'
bad 'tool 1 has not the type' '[{"name": "f"}]'
bad 'tool 1 has parameters that are no schema' '[{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]'
expect 3 'No such file' "$hone" run -m /nowhere.gguf -p x --tools nowhere.json
expect 3 'No such file' "$hone" run -m /nowhere.gguf -p x --chat-template-file nowhere
printf 'a\000b' >nul
expect 3 'no chat template' "$hone" run -m /nowhere.gguf -p x --chat-template-file nul
expect 2 'no tools' "$hone" run -m /nowhere.gguf -p x --chat-template chatml --tools tools.json
expect 2 'names a family' "$hone" run -m /nowhere.gguf -p x --chat-template chatml --chat-template-file template
expect 2 'raw is none' "$hone" run -m /nowhere.gguf -p x --raw --tools tools.json
expect 3 'tools need one' "$hone" run -m m.gguf -p x --tools tools.json
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >plain
expect 3 'takes no tools' "$hone" run -m m.gguf -p x --tools tools.json --chat-template-file plain
printf '{# tools #}{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >silent
expect 3 'does not write the tools' "$hone" run -m m.gguf -p x --tools tools.json --chat-template-file silent
printf '{%% for m in messages %%}\n{{ m.content | nonsense }}{%% endfor %%}' >broken
expect 3 'broken: .*line 2, column' "$hone" run -m m.gguf -p x --chat-template-file broken
# Run whatever family its markers are of, and what goes wrong in it has its name, before a model is opened where it can be.
printf '{%% for m in messages %%}<|im_start|>{{ m.role | upper }}:{{ m.content }}<|im_end|>{%% endfor %%}' >family
[ "$(prompt --chat-template-file family -p 'In Oslo?')" = '<|im_start|>USER:In Oslo?<|im_end|>' ] || fail "a family's markers: the model reads $(cat run.json)"
printf '<|im_start|><|im_end|>{%% for m in messages %%}\n{%% if %%}' >broken
expect 3 'broken: .*line 2, column' "$hone" run -m /nowhere.gguf -p x --chat-template-file broken
expect 3 'broken: .*line 2, column' "$hone" chat -m /nowhere.gguf --chat-template-file broken
printf '<|im_start|><|im_end|>{%% for m in messages %%}\n{{ m.content / 0 }}{%% endfor %%}' >broken
expect 3 'broken: .*line 2, column' "$hone" run -m m.gguf -p x --chat-template-file broken
for family in '<|im_start|><|im_end|>' '<start_of_turn><end_of_turn>' '<|start_header_id|><|end_header_id|><|eot_id|>' ''; do
    printf '%s' "$family" >mute
    expect 3 'mute: the chat template writes no messages' "$hone" run -m m.gguf -p x --chat-template-file mute
done
expect 3 'mute: the chat template takes no tools' "$hone" run -m m.gguf -p x --chat-template-file mute --tools tools.json
finish 'the template gets them, or it is an error'
