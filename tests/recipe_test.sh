#!/bin/sh
# hone recipe from the command line, and that a recipe's settings reach a session, its journal and the arms of a comparison.
. "$(dirname "$0")/script.sh"
cd "$tmp"
printf '# smaller keys\nfuse.mlp=off\ntype_k=q8_0 threads=1\n' >a.recipe
printf 'fuse.mlp=on\n' >b.recipe
printf 'fuse.mlp=off\nspeed=11\n' >wrong.recipe
printf 'fuse.mlp=on\nfuse=off\n' >void.recipe

expect 0 'type_k   q8_0' "$hone" recipe show a.recipe
expect 0 '      2  fuse.mlp=off' "$hone" recipe show a.recipe
expect 0 '"hash"' "$hone" recipe show a.recipe -o json
expect 0 'fuse.mlp .*off .* -> on' "$hone" recipe diff a.recipe b.recipe
expect 0 'no difference' "$hone" recipe diff a.recipe a.recipe
expect 0 '2 recipes, nothing wrong' "$hone" recipe lint a.recipe b.recipe
expect 3 'wrong.recipe:2: error: gate .speed=11.' "$hone" recipe lint wrong.recipe a.recipe
printf 'speed=11 type_k=q9_9\nfuse.mlp=off # why\nthreads=1 threads=2\n# caf\303\251 \377\n' >many.recipe
expect 3 'many.recipe:1: error: gate .speed=11.' "$hone" recipe lint many.recipe
for words in 'many.recipe:1: error: .q9_9.: no such format' 'many.recipe:3: error: .*twice' 'many.recipe:4: error: no UTF-8: the byte ff'; do
    grep -q "$words" out || fail "lint does not say $words: $(cat out)"
done
[ "$(wc -l <out)" = 4 ] || fail "four faults, and lint says: $(cat out)"
expect 3 '"line": 3' "$hone" recipe lint many.recipe -o json
printf 'fuse.mlp=off\n\377\n' >latin.recipe
expect 3 'latin.recipe:2: error: no UTF-8: the byte ff' "$hone" recipe lint latin.recipe
expect 3 '"line": 2' "$hone" recipe lint latin.recipe -o json
expect 3 'latin.recipe:2: no UTF-8' "$hone" recipe show latin.recipe
expect 3 'nowhere: error: No such file' "$hone" recipe lint nowhere
expect 3 'void.recipe:1: error: .*no effect' "$hone" recipe lint void.recipe
expect 3 'wrong.recipe:2' "$hone" recipe show wrong.recipe
expect 3 'there is no journal' "$hone" recipe best
expect 2 'two files' "$hone" recipe diff a.recipe
expect 2 'show, diff, lint and best' "$hone" recipe
expect 2 "no 'mend'" "$hone" recipe mend

# ---- settings reach whoever runs the recipe, and the command line comes before them
"$hone" synth llama3.2-1b Q4_0 m.gguf --layers 2 --width 256 --vocab 512 --seed 7 >/dev/null
expect 0 '' "$hone" trace -m m.gguf -r 2 --recipe a.recipe
expect 0 '"type_k": *"q8_0"' "$hone" journal list --kind trace -o json
expect 0 '' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-roof --no-warmup --recipe a.recipe -o jsonl --journal b.db
expect 0 '"type_k": *"q8_0"' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-roof --no-warmup --no-journal --recipe a.recipe -o jsonl
expect 0 '"n_threads": *1,' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-roof --no-warmup --no-journal --recipe a.recipe -o jsonl
expect 0 '"type_k": *"f16"' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-roof --no-warmup --no-journal --recipe a.recipe -ctk f16 -o jsonl
expect 3 'wrong.recipe' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-journal --recipe wrong.recipe
printf 'type_k=q8_0 threads=0\n' >wrong.recipe
expect 3 'wrong.recipe:1: .0.: threads' "$hone" bench -m m.gguf -p 0 -n 4 -r 1 --no-journal --recipe wrong.recipe

# ---- the denylist, with a record of the journal
record=$("$hone" journal list --kind trace -o jsonl | sed -n 's/.*"record": *"\([0-9a-f]*\)".*/\1/p')
printf 'fuse.mlp=off type_k=q8_0 | %s | the second layer forgets\n' "$record" >denylist
expect 3 'denied by .*denylist:1.*the second layer forgets' "$hone" recipe lint a.recipe
expect 0 'nothing wrong' "$hone" recipe lint b.recipe
expect 1 'no recipe was promoted' "$hone" recipe best --tier decode
exit $failed
