#!/bin/sh
# hone inspect: the whole listing and the JSON of a file with every type of value (a seed of the fuzz target, made by hone's
# writer); what a file holds is escaped, whatever it holds.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
[ -x "$hone" ] || { echo "$hone is not built"; exit 77; }
file=tests/fuzz/seeds/gguf/types.gguf
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/expected" <<'END'
tests/fuzz/seeds/gguf/types.gguf  928 bytes
GGUF version 3, alignment 32

metadata (19)
  t.u8                                         u8             200
  t.i8                                         i8             -123
  t.u16                                        u16            60000
  t.i16                                        i16            -32767
  t.u32                                        u32            4000000000
  t.i32                                        i32            -2147483648
  t.f32                                        f32            0.15625
  t.bool                                       bool           true
  t.u64                                        u64            18446744073709551615
  t.i64                                        i64            -5
  t.f64                                        f64            -3.14
  t.string                                     string         "aä\n"
  t.u8s                                        u8[3]          1, 2, 3
  t.bools                                      bool[2]        true, false
  t.i32s                                       i32[3]         -1, 2, 2147483647
  t.f32s                                       f32[2]         1, -0.5
  t.none                                       u64[0]         
  t.strings                                    string[3]      "", "a\x00b", "\xff\xfe"
  t.no_strings                                 string[0]      

tensors (3)
  one  F32      1                                   4 bytes
  four F16      2 x 3 x 1 x 2                      24 bytes
  q    Q8_0     64 x 2                            136 bytes

totals
  F32           1 tensors              1 parameters              4 bytes
  F16           1 tensors             12 parameters             24 bytes
  Q8_0          1 tensors            128 parameters            136 bytes
  141 parameters, 164 bytes (0.0 MiB), 9.30 bits per weight
END
"$hone" inspect --no-plan $file >"$dir/got"
diff "$dir/expected" "$dir/got"

cat >"$dir/expected" <<'END'
"version":3,"alignment":32
"t.u64":{"type":"u64","value":"18446744073709551615"}
"t.f64":{"type":"f64","value":-3.14}
"t.f32s":{"type":"array","element":"f32","n":2,"items":[1.0,-0.5]}
"t.none":{"type":"array","element":"u64","n":0,"items":[]}
{"name":"four","type":"F16","shape":[2,3,1,2],"part":1,"offset":736,"readable":true,"bytes":24}
"totals":{"parameters":141,"bytes":164,"bits_per_weight":9.30496454,"tensors_not_counted":0
END
"$hone" inspect $file -o jsonl >"$dir/got"
[ "$(wc -l <"$dir/got")" = 1 ]
while read -r part; do
    grep -qF -- "$part" "$dir/got" || { echo "not in the JSON: $part"; cat "$dir/got"; exit 1; }
done <"$dir/expected"

# A type that hone does not read (I16, number 25) where the tensor "one" has its type: behind name, count and dimension.
cp $file "$dir/foreign.gguf"
at=$(grep -abo 'one' "$dir/foreign.gguf" | tail -n 1 | cut -d: -f1)
printf '\031' | dd of="$dir/foreign.gguf" bs=1 seek=$((at + 3 + 4 + 8)) conv=notrunc 2>/dev/null
"$hone" inspect "$dir/foreign.gguf" >"$dir/got"
grep -q 'one  I16 .* 2 bytes  (hone does not read this type)' "$dir/got"

# How a model would be split.
"$hone" synth llama3.2-1b Q4_0 "$dir/m.gguf" --layers 2 --width 128 --vocab 320 >"$dir/got"
"$hone" inspect "$dir/m.gguf" --no-plan -sm tensor -ts 2/1 -t 3 >"$dir/got"
grep -q '^split over 2 devices by tensors$' "$dir/got" && grep -q '^  device 0: cpu, 2 thread(s)' "$dir/got"
"$hone" inspect "$dir/m.gguf" --no-plan -sm tensor -ts 2/1 -o jsonl | grep -q '"split":{"mode":"tensor","devices":\[{"device":"cpu","threads"'
rc=0; "$hone" inspect "$dir/m.gguf" -sm tensor 2>"$dir/got" || rc=$?
[ $rc = 2 ] && grep -q 'over which devices' "$dir/got"

# A file that is no model is listed all the same, and what keeps it from running is said.
"$hone" inspect $file | grep -q "would not run: .*general.architecture"

# Usage is told apart from bad input.
rc=0; "$hone" inspect 2>/dev/null || rc=$?
[ $rc = 2 ]
rc=0; "$hone" inspect "$dir/absent.gguf" 2>"$dir/got" || rc=$?
[ $rc = 3 ] && grep -q absent.gguf "$dir/got"
echo "inspect: listing, JSON, foreign types and errors are as they should be"
