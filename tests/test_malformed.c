/* test_malformed.c: files that are wrong in one place each, and what hone must make of them: exit code 3, a message that names
 * the file and the place, nothing on stdout, under a second and 100 MB; no crash, no hang.
 *
 * A case is a function that spoils a tiny model that works (malformed.h), what the message must contain, and who must notice:
 * READER cases are refused by gguf_open, so `hone inspect` and `hone run` must refuse them; LOADER cases are sound GGUF files
 * that are no sound model, so `hone run` must. The unspoiled model is the control: both commands must accept it. Every case
 * runs and all that fail are listed. Without a built hone only the reader is tried. */
#include "tests/malformed.h"

#include "base/clock.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum who { READER, LOADER };

static struct malformed {
    const char *name;
    void (*spoil)(struct doc *);
    enum who who;
    const char *says;
} cases[200];
static int n_cases;

/* Defines a case and adds it to the table. */
#define CASE(id, who, says)                                                                                                    \
    static void id(struct doc *d);                                                                                             \
    __attribute__((constructor)) static void add_##id(void)                                                                    \
    {                                                                                                                          \
        cases[n_cases++] = (struct malformed){#id, id, (who), says};                                                           \
    }                                                                                                                          \
    static void id(struct doc *d)

/* --- the header --- */

CASE(no_bytes, READER, "byte 0: the file is empty")
{
    d->keep = 0;
}
CASE(three_bytes, READER, "byte 0: not a GGUF file")
{
    d->keep = 3;
}
CASE(other_magic, READER, "byte 0: not a GGUF file")
{
    memcpy(d->magic, "ggjt", 4);
}
CASE(only_magic, READER, "byte 4: the file ends inside the header")
{
    d->keep = 4;
}
CASE(half_header, READER, "byte 16: the file ends inside the header")
{
    d->keep = 20;
}
CASE(version_0, READER, "byte 4: GGUF version 0")
{
    d->version = 0;
}
CASE(version_1, READER, "byte 4: GGUF version 1")
{
    d->version = 1;
}
CASE(version_4, READER, "byte 4: GGUF version 4")
{
    d->version = 4;
}
CASE(big_endian, READER, "byte 4: a big-endian file")
{
    d->version = 3 << 24;
}
CASE(keys_2_63, READER, "byte 16: 9223372036854775808 keys")
{
    d->claims_keys = 1ull << 63;
}
CASE(keys_too_many_for_the_file, READER, "byte 16: 60000 keys")
{
    d->claims_keys = 60000;
}
CASE(keys_one_more, READER, "byte ")
{
    d->claims_keys = d->n_keys + 1;
}
CASE(keys_one_less, READER, "byte ")
{
    d->claims_keys = d->n_keys - 1;
}
CASE(tensors_2_62, READER, "byte 8: 4611686018427387904 tensors")
{
    d->claims_tensors = 1ull << 62;
}
CASE(tensors_one_more, READER, "byte ")
{
    d->claims_tensors = d->n_tensors + 1;
}

/* --- keys --- */

CASE(key_empty, READER, "an empty key")
{
    key(d, "llama.block_count")->name.size = key(d, "llama.block_count")->claims = 0;
}
CASE(key_of_64_KiB, READER, "a key of 65536 bytes")
{
    char *name = must(arena_alloc(&d->arena, 65537));
    memset(name, 'a', 65536);
    set_u32(d, name, 1);
}
CASE(key_past_the_end, READER, "key of 1099511627776 bytes")
{
    key(d, "llama.block_count")->claims = 1ull << 40;
}
CASE(key_length_wraps, READER, "key of 18446744073709551615 bytes")
{
    key(d, "llama.block_count")->claims = UINT64_MAX;
}
CASE(key_with_nul, READER, "a key with the byte 0x00")
{
    set_u32(d, "a.b", 1);
    key(d, "a.b")->name.data = "a\0b";
}
CASE(key_with_newline, READER, "a key with the byte 0x0a")
{
    set_u32(d, "a\nb", 1);
}
CASE(key_not_utf8, READER, "a key with the byte 0xc3")
{
    set_u32(d, "a\xc3(", 1);
}
/* The message cuts the key between two characters. */
CASE(key_long_in_utf8, READER, "\xc3\xa4\xc3\xa4...': unknown value type 13")
{
    char *name = must(arena_alloc(&d->arena, 402));
    for (int i = 0; i < 200; i++)
        memcpy(name + 1 + 2 * i, "\xc3\xa4", 2);
    *name = 'a';
    set(d, name, 13, "12345678", 8);
}
CASE(key_twice, READER, "key 'llama.block_count': is there twice")
{
    d->keys[d->n_keys++] = *key(d, "llama.block_count");
}

/* --- values --- */

CASE(type_13, READER, "key 'x': unknown value type 13")
{
    set(d, "x", 13, "12345678", 8);
}
CASE(type_2_32, READER, "key 'x': unknown value type 4294967295")
{
    set(d, "x", UINT32_MAX, "12345678", 8);
}
CASE(array_of_arrays, READER, "key 'x': an array of arrays")
{
    set_array(d, "x", GGUF_ARRAY, 1, "\4\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0", 16);
}
CASE(array_of_unknown, READER, "key 'x': unknown element type 99")
{
    set_array(d, "x", 99, 1, "1234", 4);
}
CASE(array_size_wraps, READER, "key 'x': 2305843009213693952 items")
{
    set_array(d, "x", GGUF_U64, 1ull << 61, NULL, 0);
}
CASE(array_2_64, READER, "key 'x': 18446744073709551615 items")
{
    set_array(d, "x", GGUF_U8, UINT64_MAX, NULL, 0);
}
CASE(array_past_the_end, READER, "key 'x': 4294967296 items")
{
    set_array(d, "x", GGUF_U32, 1ull << 32, "1234", 4);
}
/* 160 bytes that announce gigabytes. */
CASE(tiny_file_with_gigabytes, READER, "key 'x': 1000000000 strings, but only")
{
    doc_empty(d);
    set_array(d, "x", GGUF_STRING, 1000000000, NULL, 0);
    blob_add(d, &key(d, "x")->value, must(arena_alloc(&d->arena, 111)), 111);
}
CASE(strings_2_60, READER, "key 'x': 1152921504606846976 strings")
{
    set_array(d, "x", GGUF_STRING, 1ull << 60, NULL, 0);
}
CASE(string_past_the_end, READER, "key 'x': a string of 1099511627776 bytes")
{
    set(d, "x", GGUF_STRING, "\0\0\0\0\0\1\0\0xy", 10);
}
CASE(string_length_wraps, READER, "key 'x': a string of 18446744073709551615 bytes")
{
    set(d, "x", GGUF_STRING, "\377\377\377\377\377\377\377\377xy", 10);
}
CASE(string_in_array_past_the_end, READER, "key 'x': a string of 16777216 bytes")
{
    set_array(d, "x", GGUF_STRING, 2, "\1\0\0\0\0\0\0\0a\0\0\0\1\0\0\0\0b", 18);
}
CASE(bool_2, READER, "key 'x': a bool of value 2")
{
    set(d, "x", GGUF_BOOL, "\2", 1);
}
CASE(bool_255_in_array, READER, "key 'x': a bool of value 255")
{
    set_array(d, "x", GGUF_BOOL, 3, "\0\1\377", 3);
}
CASE(ends_in_a_value, READER, "only 2 bytes remain")
{
    doc_empty(d);
    set_u32(d, "x", 1);
    d->cut = 2;
}

/* --- alignment --- */

CASE(alignment_u64, READER, "key 'general.alignment': is of type u64")
{
    set(d, "general.alignment", GGUF_U64, &(uint64_t){32}, 8);
}
CASE(alignment_string, READER, "key 'general.alignment': is of type string")
{
    set_string(d, "general.alignment", "32");
}
CASE(alignment_0, READER, "key 'general.alignment': 0 is not")
{
    set_u32(d, "general.alignment", 0);
}
CASE(alignment_1, READER, "key 'general.alignment': 1 is not")
{
    set_u32(d, "general.alignment", 1);
}
CASE(alignment_48, READER, "key 'general.alignment': 48 is not")
{
    set_u32(d, "general.alignment", 48);
}
CASE(alignment_2_31, READER, "behind the file's end")
{
    set_u32(d, "general.alignment", 1u << 31);
}

/* --- the tensor table --- */

CASE(tensor_name_empty, READER, "an empty tensor name")
{
    tensor(d, "output_norm.weight")->name.size = 0;
}
CASE(tensor_name_of_256, READER, "a tensor name of 256 bytes")
{
    char *name = must(arena_alloc(&d->arena, 257));
    memset(name, 'a', 256);
    tensor(d, "output_norm.weight")->name = (struct gguf_string){name, 256};
}
CASE(tensor_name_with_nul, READER, "a tensor name with the byte 0x00")
{
    tensor(d, "output_norm.weight")->name = (struct gguf_string){"output_norm.weight", 19};
}
CASE(tensor_name_not_utf8, READER, "a tensor name with the byte 0xff")
{
    tensor(d, "output_norm.weight")->name.data = "output_norm.w\xffight";
}
CASE(tensor_name_with_escape, READER, "a tensor name with the byte 0x1b")
{
    tensor(d, "output_norm.weight")->name.data = "output_norm.w\x1bight";
}
CASE(tensor_name_past_the_end, READER, "tensor name of 40000 bytes, but only")
{
    d->n_tensors = 1;
    d->tensors[0].name = (struct gguf_string){must(arena_alloc(&d->arena, 40000)), 40000};
    d->tensors[0].data.n = 0;
    d->cut = 20000;
}
CASE(tensor_twice, READER, "tensor 'blk.0.attn_norm.weight': is there twice")
{
    tensor(d, "output_norm.weight")->name = tensor(d, "blk.0.attn_norm.weight")->name;
}
CASE(dims_0, READER, "tensor 'output_norm.weight': 0 dimensions")
{
    tensor(d, "output_norm.weight")->n_dims = 0;
}
CASE(dims_5, READER, "tensor 'output_norm.weight': 5 dimensions")
{
    struct doc_tensor *t = tensor(d, "output_norm.weight");
    t->n_dims = 5;
    t->ne[1] = t->ne[2] = t->ne[3] = t->ne[4] = 1;
}
CASE(dims_2_32, READER, "tensor 'output_norm.weight': 4294967295 dimensions")
{
    tensor(d, "output_norm.weight")->n_dims = UINT32_MAX;
}
CASE(dimension_0, READER, "tensor 'output_norm.weight': dimension 0 is 0")
{
    tensor(d, "output_norm.weight")->ne[0] = 0;
}
CASE(dimension_negative, READER, "tensor 'output_norm.weight': dimension 0, 9223372036854775840")
{
    tensor(d, "output_norm.weight")->ne[0] |= 1ull << 63;
}
CASE(shape_wraps, READER, "tensor 'blk.0.attn_q.weight': dimension 1, 4398046511104, makes its size overflow")
{
    tensor(d, "blk.0.attn_q.weight")->ne[0] = tensor(d, "blk.0.attn_q.weight")->ne[1] = 1ull << 42;
}
CASE(shape_wraps_to_0, READER, "makes its size overflow")
{
    struct doc_tensor *t = tensor(d, "blk.0.attn_q.weight");
    t->n_dims = 4;
    t->ne[0] = t->ne[1] = t->ne[2] = t->ne[3] = 1ull << 16;
}
CASE(bytes_wrap, READER, "tensor 'blk.0.attn_q.weight': its size overflows")
{
    tensor(d, "blk.0.attn_q.weight")->ne[0] = 1ull << 62;
    tensor(d, "blk.0.attn_q.weight")->ne[1] = 1;
}
CASE(shape_near_2_42, READER, "tensor 'blk.0.attn_q.weight'")
{
    tensor(d, "blk.0.attn_q.weight")->ne[1] = 1ull << 42;
}
CASE(row_no_multiple_of_block, READER, "tensor 'blk.0.attn_q.weight': rows of 33 values in Q8_0")
{
    tensor(d, "blk.0.attn_q.weight")->type = 8;
    tensor(d, "blk.0.attn_q.weight")->ne[0] = 33;
}
CASE(tensor_type_negative, READER, "tensor 'output_norm.weight': type number 4294967295")
{
    tensor(d, "output_norm.weight")->type = UINT32_MAX;
}
CASE(offset_misaligned, READER, "tensor 'blk.0.ffn_down.weight': data offset 4 is not a multiple of 32")
{
    tensor(d, "blk.0.ffn_down.weight")->offset = 4;
}
CASE(offset_past_the_end, READER, "tensor 'blk.0.ffn_down.weight': data offset 1099511627776 lies behind")
{
    tensor(d, "blk.0.ffn_down.weight")->offset = 1ull << 40;
}
CASE(offset_wraps, READER, "tensor 'blk.0.ffn_down.weight': data offset 18446744073709551584 lies behind")
{
    tensor(d, "blk.0.ffn_down.weight")->offset = -32ull;
}
CASE(data_overlaps, READER, "overlaps that of")
{
    tensor(d, "blk.0.ffn_down.weight")->offset = 32;
}
CASE(data_shared, READER, "overlaps that of")
{
    tensor(d, "blk.0.attn_v.weight")->offset = 32 * 4 * DOC_TOKENS + 128 + 128 + 4096; /* where attn_k lies */
}
CASE(last_byte_missing, READER, "tensor 'blk.0.ffn_down.weight': its data has 8192 bytes, but the file ends after 8191")
{
    d->cut = 1;
}
CASE(no_data, READER, "tensor 'token_embd.weight'")
{
    d->cut = 32 * 4 * DOC_TOKENS + 3 * 128 + 2 * 4096 + 2 * 2048 + 3 * 8192;
}
CASE(ends_in_the_table, READER, "tensor name of 21 bytes, but only 20 remain")
{
    d->cut = 32 * 4 * DOC_TOKENS + 3 * 128 + 2 * 4096 + 2 * 2048 + 3 * 8192 + 64;
}
CASE(half_the_file, READER, "truncated?")
{
    d->cut = 30000;
}

/* --- parts --- */

static void make_part(struct doc *d, const char *name, uint16_t no, uint16_t count)
{
    snprintf(d->name, sizeof d->name, "%s", name);
    set(d, "split.no", GGUF_U16, &no, 2);
    set(d, "split.count", GGUF_U16, &count, 2);
    set(d, "split.tensors.count", GGUF_I32, &(int32_t){20}, 4);
}
CASE(part_of_no_name, READER, "is part 1 of 3")
{
    make_part(d, "m.gguf", 0, 3);
}
CASE(part_of_wrong_name, READER, "named part 2 of 3, but its keys say part 1 of 3")
{
    make_part(d, "m-00002-of-00003.gguf", 0, 3);
}
CASE(part_with_signs, READER, "is not named")
{
    make_part(d, "m-+0001-of-00003.gguf", 0, 3);
}
CASE(part_missing, READER, "m-00002-of-00003.gguf")
{
    make_part(d, "m-00001-of-00003.gguf", 0, 3);
}
CASE(part_beyond_count, READER, "split.no is 7 of 3")
{
    make_part(d, "m-00001-of-00003.gguf", 7, 3);
}
CASE(part_without_number, READER, "split.no")
{
    make_part(d, "m-00001-of-00003.gguf", 0, 3);
    drop(d, "split.no");
}
CASE(part_count_string, READER, "key 'split.count': a string")
{
    make_part(d, "m-00001-of-00003.gguf", 0, 3);
    set_string(d, "split.count", "3");
}
CASE(parts_2_32, READER, "split.count")
{
    make_part(d, "m-00001-of-00003.gguf", 0, 3);
    set_u32(d, "split.count", UINT32_MAX);
}

/* --- sound files that are no sound model: general --- */

CASE(no_keys_no_tensors, LOADER, "general.architecture")
{
    doc_empty(d);
}
CASE(architecture_missing, LOADER, "general.architecture")
{
    drop(d, "general.architecture");
}
CASE(architecture_number, LOADER, "general.architecture")
{
    set_u32(d, "general.architecture", 7);
}
CASE(architecture_unknown, LOADER, "mamba-9000")
{
    set_string(d, "general.architecture", "mamba-9000");
}
CASE(architecture_empty, LOADER, "architecture ''")
{
    set_string(d, "general.architecture", "");
}
CASE(architecture_with_escape, LOADER, "architecture 'llama")
{
    set_string(d, "general.architecture", "llama\x1b[31m\n");
}

/* --- tensors --- */

CASE(no_tensors, LOADER, "token_embd.weight")
{
    d->n_tensors = 0;
}
CASE(norm_missing, LOADER, "output_norm.weight")
{
    drop_tensor(d, "output_norm.weight");
}
CASE(two_missing, LOADER, "blk.0.attn_q.weight, blk.0.ffn_up.weight")
{
    drop_tensor(d, "blk.0.attn_q.weight");
    drop_tensor(d, "blk.0.ffn_up.weight");
}
CASE(stray_tensor, LOADER, "blk.7.mystery.weight")
{
    add_f32(d, "blk.7.mystery.weight", 8, 0);
}
CASE(tensor_transposed, LOADER, "blk.0.attn_k.weight")
{
    tensor(d, "blk.0.attn_k.weight")->ne[0] = 16;
    tensor(d, "blk.0.attn_k.weight")->ne[1] = 32;
}
CASE(embedding_flat, LOADER, "token_embd.weight")
{
    tensor(d, "token_embd.weight")->n_dims = 1;
    tensor(d, "token_embd.weight")->ne[0] *= DOC_TOKENS;
}
CASE(embedding_4d, LOADER, "token_embd.weight")
{
    tensor(d, "token_embd.weight")->n_dims = 4;
    tensor(d, "token_embd.weight")->ne[1] = 131;
    tensor(d, "token_embd.weight")->ne[2] = 2;
    tensor(d, "token_embd.weight")->ne[3] = 1;
}
CASE(tensor_of_unknown_type, LOADER, "blk.0.attn_q.weight")
{
    tensor(d, "blk.0.attn_q.weight")->type = 19;
}
CASE(embedding_of_unknown_type, LOADER, "token_embd.weight")
{
    tensor(d, "token_embd.weight")->type = 77;
}
CASE(norm_in_f16, LOADER, "blk.0.attn_norm.weight")
{
    tensor(d, "blk.0.attn_norm.weight")->type = 1;
}
CASE(weight_of_integers, LOADER, "blk.0.attn_q.weight")
{
    tensor(d, "blk.0.attn_q.weight")->type = 26;
}
CASE(norm_too_short, LOADER, "blk.0.ffn_norm.weight")
{
    tensor(d, "blk.0.ffn_norm.weight")->ne[0] = 31;
}
CASE(bias_too_long, LOADER, "blk.0.attn_q.bias")
{
    add_f32(d, "blk.0.attn_q.bias", 33, 0);
}
CASE(output_of_other_vocabulary, LOADER, "output.weight")
{
    add_f32(d, "output.weight", 32, 8);
}
CASE(rope_factors_too_short, LOADER, "rope_freqs.weight")
{
    add_f32(d, "rope_freqs.weight", 3, 0);
}

/* --- numbers --- */

CASE(layers_missing, LOADER, "llama.block_count")
{
    drop(d, "llama.block_count");
}
CASE(layers_0, LOADER, "llama.block_count")
{
    set_u32(d, "llama.block_count", 0);
}
CASE(layers_2_31, LOADER, "llama.block_count")
{
    set_u32(d, "llama.block_count", 1u << 31);
}
CASE(layers_2_40, LOADER, "llama.block_count")
{
    set(d, "llama.block_count", GGUF_U64, &(uint64_t){1ull << 40}, 8);
}
CASE(layers_negative, LOADER, "llama.block_count")
{
    set(d, "llama.block_count", GGUF_I32, &(int32_t){-1}, 4);
}
CASE(layers_float, LOADER, "llama.block_count")
{
    set_f32(d, "llama.block_count", 1);
}
CASE(layers_string, LOADER, "llama.block_count")
{
    set_string(d, "llama.block_count", "1");
}
CASE(layers_array, LOADER, "llama.block_count")
{
    set_array(d, "llama.block_count", GGUF_U32, 1, "\1\0\0\0", 4);
}
CASE(layers_more_than_there_are, LOADER, "blk.1.attn_norm.weight")
{
    set_u32(d, "llama.block_count", 2);
}
CASE(width_0, LOADER, "llama.embedding_length")
{
    set_u32(d, "llama.embedding_length", 0);
}
CASE(width_2_32, LOADER, "llama.embedding_length")
{
    set_u32(d, "llama.embedding_length", UINT32_MAX);
}
CASE(width_of_another, LOADER, "token_embd.weight")
{
    set_u32(d, "llama.embedding_length", 64);
}
CASE(heads_missing, LOADER, "llama.attention.head_count")
{
    drop(d, "llama.attention.head_count");
}
CASE(heads_0, LOADER, "llama.attention.head_count")
{
    set_u32(d, "llama.attention.head_count", 0);
}
CASE(heads_2_32, LOADER, "llama.attention.head_count")
{
    set_u32(d, "llama.attention.head_count", UINT32_MAX);
}
CASE(heads_2_31, LOADER, "llama.attention.head_count")
{
    set_u32(d, "llama.attention.head_count", 1u << 31);
}
CASE(heads_odd, LOADER, "blk.0.attn_q.weight")
{
    set_u32(d, "llama.attention.head_count", 3);
}
CASE(heads_array_empty, LOADER, "llama.attention.head_count")
{
    set_array(d, "llama.attention.head_count", GGUF_U32, 0, NULL, 0);
}
CASE(heads_array_of_strings, LOADER, "llama.attention.head_count")
{
    set_array(d, "llama.attention.head_count", GGUF_STRING, 1, "\1\0\0\0\0\0\0\0002", 9);
}
CASE(kv_heads_0, LOADER, "llama.attention.head_count_kv")
{
    set_u32(d, "llama.attention.head_count_kv", 0);
}
CASE(kv_heads_more_than_heads, LOADER, "KV heads")
{
    set_u32(d, "llama.attention.head_count_kv", 4);
}
CASE(head_size_0, LOADER, "llama.attention.key_length")
{
    set_u32(d, "llama.attention.key_length", 0);
}
CASE(head_size_2_31, LOADER, "llama.attention.key_length")
{
    set_u32(d, "llama.attention.key_length", 1u << 31);
}
CASE(value_size_of_another, LOADER, "blk.0.attn_v.weight")
{
    set_u32(d, "llama.attention.value_length", 24);
}
CASE(ffn_0, LOADER, "llama.feed_forward_length")
{
    set_u32(d, "llama.feed_forward_length", 0);
}
CASE(ffn_of_another, LOADER, "blk.0.ffn_gate.weight")
{
    set_u32(d, "llama.feed_forward_length", 96);
}
CASE(context_0, LOADER, "llama.context_length")
{
    set_u32(d, "llama.context_length", 0);
}
CASE(context_string, LOADER, "llama.context_length")
{
    set_string(d, "llama.context_length", "64");
}
CASE(epsilon_missing, LOADER, "llama.attention.layer_norm_rms_epsilon")
{
    drop(d, "llama.attention.layer_norm_rms_epsilon");
}
CASE(epsilon_nan, LOADER, "llama.attention.layer_norm_rms_epsilon")
{
    set_f32(d, "llama.attention.layer_norm_rms_epsilon", NAN);
}
CASE(epsilon_negative, LOADER, "llama.attention.layer_norm_rms_epsilon")
{
    set_f32(d, "llama.attention.layer_norm_rms_epsilon", -1);
}
CASE(epsilon_string, LOADER, "llama.attention.layer_norm_rms_epsilon")
{
    set_string(d, "llama.attention.layer_norm_rms_epsilon", "1e-5");
}
CASE(rope_odd, LOADER, "llama.rope.dimension_count")
{
    set_u32(d, "llama.rope.dimension_count", 7);
}
CASE(rope_0, LOADER, "llama.rope.dimension_count")
{
    set_u32(d, "llama.rope.dimension_count", 0);
}
CASE(rope_wider_than_head, LOADER, "llama.rope.dimension_count")
{
    set_u32(d, "llama.rope.dimension_count", 32);
}
CASE(rope_base_0, LOADER, "llama.rope.freq_base")
{
    set_f32(d, "llama.rope.freq_base", 0);
}
CASE(rope_base_infinite, LOADER, "llama.rope.freq_base")
{
    set_f32(d, "llama.rope.freq_base", INFINITY);
}
CASE(rope_scaling_unknown, LOADER, "llama.rope.scaling.type")
{
    set_string(d, "llama.rope.scaling.type", "twist");
}
CASE(rope_factor_nan, LOADER, "llama.rope.scaling.factor")
{
    set_f32(d, "llama.rope.scaling.factor", NAN);
}

/* --- the vocabulary --- */

CASE(tokenizer_missing, LOADER, "tokenizer.ggml.model")
{
    drop(d, "tokenizer.ggml.model");
}
CASE(tokenizer_number, LOADER, "tokenizer.ggml.model")
{
    set_u32(d, "tokenizer.ggml.model", 1);
}
CASE(tokenizer_unknown, LOADER, "clay-tablets")
{
    set_string(d, "tokenizer.ggml.model", "clay-tablets");
}
CASE(tokens_missing, LOADER, "tokenizer.ggml.tokens")
{
    drop(d, "tokenizer.ggml.tokens");
}
CASE(tokens_none, LOADER, "tokenizer.ggml.tokens")
{
    set_array(d, "tokenizer.ggml.tokens", GGUF_STRING, 0, NULL, 0);
}
CASE(tokens_numbers, LOADER, "tokenizer.ggml.tokens")
{
    set_array(d, "tokenizer.ggml.tokens", GGUF_U8, DOC_TOKENS, must(arena_alloc(&d->arena, DOC_TOKENS)), DOC_TOKENS);
}
CASE(tokens_one_string, LOADER, "tokenizer.ggml.tokens")
{
    set_string(d, "tokenizer.ggml.tokens", "abc");
}
CASE(scores_bytes, LOADER, "tokenizer.ggml.scores")
{
    set_array(d, "tokenizer.ggml.scores", GGUF_U8, DOC_TOKENS, must(arena_alloc(&d->arena, DOC_TOKENS)), DOC_TOKENS);
}
CASE(scores_strings, LOADER, "tokenizer.ggml.scores")
{
    set_array(d, "tokenizer.ggml.scores", GGUF_STRING, 1, "\1\0\0\0\0\0\0\0002", 9);
}
CASE(scores_too_few, LOADER, "tokenizer.ggml.scores")
{
    set_array(d, "tokenizer.ggml.scores", GGUF_F32, 2, "12345678", 8);
}
CASE(scores_number, LOADER, "tokenizer.ggml.scores")
{
    set_f32(d, "tokenizer.ggml.scores", 1);
}
CASE(kinds_too_few, LOADER, "tokenizer.ggml.token_type")
{
    set_array(d, "tokenizer.ggml.token_type", GGUF_I32, 2, "\1\0\0\0\1\0\0\0", 8);
}
CASE(kinds_strings, LOADER, "tokenizer.ggml.token_type")
{
    set_array(d, "tokenizer.ggml.token_type", GGUF_STRING, 1, "\1\0\0\0\0\0\0\0002", 9);
}
CASE(eos_string, LOADER, "tokenizer.ggml.eos_token_id")
{
    set_string(d, "tokenizer.ggml.eos_token_id", "</s>");
}
CASE(more_tokens_than_rows, LOADER, "token_embd.weight")
{
    tensor(d, "token_embd.weight")->ne[1] = 100;
}
CASE(bpe_without_merges, LOADER, "tokenizer.ggml.merges")
{
    set_string(d, "tokenizer.ggml.model", "gpt2");
    set_string(d, "tokenizer.ggml.pre", "gpt-2");
}
CASE(bpe_merges_numbers, LOADER, "tokenizer.ggml.merges")
{
    set_string(d, "tokenizer.ggml.model", "gpt2");
    set_string(d, "tokenizer.ggml.pre", "gpt-2");
    set_array(d, "tokenizer.ggml.merges", GGUF_U32, 1, "1234", 4);
}
CASE(bpe_unknown_pattern, LOADER, "scissors")
{
    set_string(d, "tokenizer.ggml.model", "gpt2");
    set_string(d, "tokenizer.ggml.pre", "scissors");
    set_array(d, "tokenizer.ggml.merges", GGUF_STRING, 1, "\3\0\0\0\0\0\0\0x x", 11);
}

/* --- running them --- */

static char folder[200];
static const char *program; /* NULL: not built */

static void write_file(const char *path, struct doc *d)
{
    struct blob b = doc_bytes(d);
    FILE *f = must(fopen(path, "wb"));
    if (b.n && fwrite(b.data, 1, b.n, f) != b.n)
        abort();
    fclose(f);
}

struct outcome {
    int code; /* exit code; -n: killed by signal n */
    double ms;
    long rss_kb;
    size_t out; /* bytes on stdout */
    char err[2000];
};

static size_t read_back(const char *path, char *text, size_t size)
{
    FILE *f = must(fopen(path, "rb"));
    size_t n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
    return n;
}

static void run_program(struct outcome *o, char *const argv[])
{
    char out[300], err[300], text[4096];
    snprintf(out, sizeof out, "%s/stdout", folder);
    snprintf(err, sizeof err, "%s/stderr", folder);
    int64_t start = clock_ns();
    pid_t pid = fork();
    if (pid == 0) {
        int fd_out = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), fd_err = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd_out < 0 || fd_err < 0 || dup2(fd_out, 1) < 0 || dup2(fd_err, 2) < 0)
            _exit(99);
        close(0);
        alarm(20); /* survives exec: a hang ends with SIGALRM */
        execv(argv[0], argv);
        _exit(98);
    }
    int status = 0;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
        abort();
    o->ms = (double)(clock_ns() - start) * 1e-6;
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    o->rss_kb = usage.ru_maxrss;
    o->out = read_back(out, text, sizeof text);
    read_back(err, o->err, sizeof o->err);
}

#ifdef HONE_SANITIZED
static const double ms_limit = 10000;
static const long rss_limit_kb = 1 << 30; /* means nothing here */
#else
static const double ms_limit = 1000;
static const long rss_limit_kb = 100 * 1000;
#endif

/* What is wrong with the outcome of a file that must be refused, or NULL. */
static const char *judge(const struct outcome *o, const struct malformed *c, const char *file)
{
    if (o->code != 3)
        return "the exit code is not 3";
    if (!strstr(o->err, file))
        return "the message does not name the file";
    if (!strstr(o->err, c->says))
        return "the message does not name the place";
    if (o->out)
        return "something was printed on stdout";
    if (o->ms > ms_limit)
        return "it took too long";
    if (o->rss_kb > rss_limit_kb)
        return "it took too much memory";
    return NULL;
}

/* Runs inspect or run on the file; 1 if that went wrong. */
static int try_program(const struct malformed *c, const char *path, const char *file, bool inspect)
{
    char *inspect_args[] = {(char *)(uintptr_t)program, "inspect", (char *)(uintptr_t)path, "-o", "json", NULL};
    char *run_args[] = {(char *)(uintptr_t)program, "run", "-m", (char *)(uintptr_t)path, "-p", "x", "-n", "1", NULL};
    struct outcome o;
    run_program(&o, inspect ? inspect_args : run_args);
    const char *wrong = judge(&o, c, file);
    if (inspect && c->who == LOADER) /* a sound file: it may show it, or say that it is no model */
        wrong = o.code != 0 && o.code != 3 ? "the exit code is neither 0 nor 3" : NULL;
    if (!wrong)
        return 0;
    print_message("%s: hone %s: %s (code %d, %.0f ms, %ld kB, %zu bytes on stdout; wanted '%s')\n%s\n", c->name,
                  inspect ? "inspect" : "run", wrong, o.code, o.ms, o.rss_kb, o.out, c->says, o.err);
    return 1;
}

/* The reader alone, in this process. */
static int try_reader(const struct malformed *c, const char *path, const char *file)
{
    struct hone_error e = {0};
    struct gguf *g = NULL;
    int rc = gguf_open(&g, path, &e);
    int wanted = c->who == READER ? HONE_EINPUT : 0;
    bool wrong = rc != wanted || (rc && (g || !strstr(e.message, file) || !strstr(e.message, c->says)));
    if (wrong)
        print_message("%s: gguf_open gives %d, '%s'; wanted %d, '%s'\n", c->name, rc, e.message, wanted, c->says);
    gguf_close(g);
    return wrong;
}

static int try_all(int (*try)(const struct malformed *, const char *path, const char *file))
{
    struct doc d = {0};
    int failed = 0;
    for (int i = 0; i < n_cases; i++) {
        char path[300];
        doc_model(&d);
        cases[i].spoil(&d);
        snprintf(path, sizeof path, "%s/%s", folder, d.name);
        write_file(path, &d);
        failed += try(&cases[i], path, d.name);
        unlink(path);
    }
    arena_free(&d.arena);
    return failed;
}

static int try_both(const struct malformed *c, const char *path, const char *file)
{
    return try_program(c, path, file, true) + try_program(c, path, file, false);
}

static void test_control(void **state)
{
    (void)state;
    char path[300];
    struct doc d = {0};
    struct hone_error e = {0};
    struct gguf *g;
    doc_model(&d);
    snprintf(path, sizeof path, "%s/control.gguf", folder);
    write_file(path, &d);
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.message);
    gguf_close(g);
    arena_free(&d.arena);
    for (int i = 0; program && i < 2; i++) {
        char *args[2][9] = {{(char *)(uintptr_t)program, "inspect", path, "-o", "json", NULL},
                            {(char *)(uintptr_t)program, "run", "-m", path, "-p", "x", "-n", "1", NULL}};
        struct outcome o;
        run_program(&o, args[i]);
        if (o.code)
            fail_msg("hone %s refuses the model that is not spoiled: code %d\n%s", args[i][1], o.code, o.err);
        assert_true(!i || o.out > 0);
    }
    unlink(path);
}

static void test_reader(void **state)
{
    (void)state;
    assert_true(n_cases >= 100);
    assert_int_equal(try_all(try_reader), 0);
    print_message("%d malformed files: the reader does what it should\n", n_cases);
}

static void test_program(void **state)
{
    (void)state;
    if (!program) {
        print_message("hone is not built: the commands are not tried\n");
        skip();
    }
    assert_int_equal(try_all(try_both), 0);
    print_message("%d malformed files: refused by the commands\n", n_cases);
}

static int make_folder(void **state)
{
    (void)state;
    static char path[400];
    const char *tmp = getenv("TMPDIR"), *build = getenv("B");
    snprintf(path, sizeof path, "%s/hone", build ? build : "build");
    program = access(path, X_OK) ? NULL : path;
    snprintf(folder, sizeof folder, "%s/hone-malformed-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_program),
    };
    return cmocka_run_group_tests_name("malformed", tests, make_folder, remove_folder);
}
