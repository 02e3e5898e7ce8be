#!/bin/sh
# CUDA kernels without a GPU: compiled as C++ (tests/emulated) and held to the references on their ops' cases. Here the ops that take
# seconds; with an argument (cuda_emulated_soak.sh) all. Kernels with inline PTX of their own are not among them.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
E=$B/emulated
kernels='norm rope conv delta delta_step *_simt attention_split attention_step attention_tile gated_delta_net_chunk quantize_a8 product product_halves product_fine
halves_32 halves_256'
products='mul_mat_group_s32 mul_mat_add_s32 gate_up_glu_s32 linear_s32' # for what they share; their own kernels are not run
collectives='all_reduce all_reduce_norm all_gather_staged'
ops='add mul scale unary glu softmax rms_norm l2_norm rms_norm_mul add_rms_norm_mul rms_norm_mul_quantize add_rms_norm_mul_quantize rope kv_write
rope_kv copy top_k route_weights expert_sum ssm_conv ssm_conv_silu gated_delta_rule conv_delta_net conv_delta_net_quantize
rope_kv_attention rope_kv_attention_quantize quantize mul_mat_group linear'

command -v g++ >/dev/null 2>&1 && [ "$(uname -m)" = x86_64 ] || { echo "cuda_emulated: no g++ for x86-64"; exit 77; }
[ -f "$B/libhone.a" ] || { echo "cuda_emulated: $B/libhone.a is not built"; exit 1; }
# shellcheck disable=SC1090
libs=$(sed -n 's/^LIB_LIBS := //p' "$B/config.mk")
rm -rf "$E"
mkdir -p "$E/backends/cuda"
# Shared memory: what a launch gives is asked for, what a kernel declares is static. Headers stand beside the sources.
for f in backends/cuda/*.cuh backends/cuda/*.h $(for k in $kernels $products; do ls backends/cuda/$k.cu; done); do
    case $(basename "$f") in cuda.h | ptx.cuh | wgmma.cuh | link_ptx.cuh | persistent_ptx.cuh) continue ;; esac
    sed -E 's/extern __shared__ (__align__\([0-9]+\) )?([a-z0-9_ ]+[a-z0-9_]) ([a-z_]+)\[\];/\2 *\3 = (\2 *)emulated_shared();/
        s/^( *)__shared__ /\1static /' "$f" >"$E/$f"
done
sed -n 's/.*CUDA_KERNEL(\([A-Za-z0-9_]*\)).*/ROW(\1)/p' $(for k in $kernels; do ls "$E"/backends/cuda/$k.cu; done) >"$E/rows.def"
for f in "$E"/backends/cuda/*.cu tests/emulated/*.cc; do echo "$f"; done |
    E=$E xargs -P "$(nproc)" -I '{}' sh -c '${CXX:-g++} -x c++ -std=gnu++20 -O1 -w -I"$E" -Itests/emulated -I. -Iinclude -c "{}" -o "$E/$(basename "{}").o"'
${CC:-gcc} -std=c17 -D_GNU_SOURCE -O1 -I"$E" -I. -Iinclude -c tests/emulated/check.c -o "$E/check.o"
# Collectives: links.cc runs several ranks at once. Little goes in a turn, so that there are several of them.
mkdir -p "$E/links/backends/cuda"
cp "$E"/backends/cuda/*.cuh "$E"/backends/cuda/*.h "$E/links/backends/cuda"
sed -i 's/LINK_CHANNELS = 128/LINK_CHANNELS = 3/; s/LINK_CROWDED = 32/LINK_CROWDED = 2/; s/LINK_WORD_CHANNELS = 8/LINK_WORD_CHANNELS = 2/
    s/LINK_STAGED = 16384/LINK_STAGED = 256/; s/LINK_RANKS = 32/LINK_RANKS = 8/' "$E/links/backends/cuda/link.h"
for k in $collectives; do
    sed -E 's/extern __shared__ ([a-z0-9_ ]+[a-z0-9_]) ([a-z_]+)\[\];/\1 *\2 = (\1 *)emulated_shared();/' "backends/cuda/$k.cu" \
        >"$E/links/$k.cu"
    ${CXX:-g++} -x c++ -std=gnu++20 -O1 -w -I"$E/links" -Itests/emulated -I. -Iinclude -c "$E/links/$k.cu" -o "$E/links/$k.o"
done
${CXX:-g++} -std=gnu++20 -O1 -w -I"$E/links" -Itests/emulated -I. -Iinclude -c tests/emulated/links/links.cc -o "$E/links/links.o"
# The kernel of a whole step, which runs by itself.
${CXX:-g++} -x c++ -std=gnu++20 -O1 -w -I"$E" -Itests/emulated -I. -Iinclude -c tests/emulated/persistent/persistent.cc -o "$E/links/persistent.o"
# The table of backends as it is without CUDA, so that the library's own kernels stay out.
${CC:-gcc} -std=c17 -D_GNU_SOURCE -O1 -I. -Iinclude -c backends/backends.c -o "$E/backends.o"
# shellcheck disable=SC2086
${CXX:-g++} "$E"/*.o "$B/libhone.a" $libs -lm -ldl -pthread -o "$E/check"
# shellcheck disable=SC2086
${CXX:-g++} "$E"/*.cu.o "$E"/*.cc.o "$E/backends.o" "$E/links/persistent.o" "$B/libhone.a" $libs -lm -ldl -pthread -o "$E/links/persistent"
# shellcheck disable=SC2086
${CXX:-g++} "$E"/links/all_*.o "$E/links/links.o" "$E/norm.cu.o" "$E/add_rms_norm_mul_simt.cu.o" "$E/add_rms_norm_mul_quantize_simt.cu.o" "$E/emulated.cc.o" \
    "$E/backends.o" "$B/libhone.a" $libs -lm -ldl -pthread -o "$E/links/links"
"$E/links/links"
"$E/links/persistent"
if [ $# -gt 0 ]; then
    exec "$E/check"
fi
# shellcheck disable=SC2086
exec "$E/check" $ops
