# hone. `make demo` and `make test` are all that a newcomer needs: each installs what is missing (.ci/setup) and builds first.
#
#   all     build/hone, libhone.a and libhone.so     demo   fetch a small real model and let it speak
#   test    every test, under 20 minutes             soak   what takes longer: fuzzers for minutes, whole models
#   check   every kernel against its reference       bench  the measurements of bench/
#   fuzz    the fuzz targets, FUZZ_SECONDS each       asan   the unit tests under AddressSanitizer and UBSan
#   deps    the arrows between the folders hold      install  into PREFIX (default /usr/local)
#   check-cuda  kernels and models on a GPU, against the references
#
# OFFLINE=1 skips what needs a download, visibly. B=<folder> builds elsewhere. DEBUG=1 builds without optimisation. V=1 shows the commands.
# CUDA=0 leaves the CUDA backend out where nvcc is found. LINK_STATIC=1 links build/hone with what it needs, for machines that lack the libraries:
#   make B=build-cuda CUDA=1 LINK_STATIC=1 build-cuda/hone

B ?= build
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
CACHE ?= $(or $(HONE_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/hone)
export CACHE B

# A line a file, or with V=1 its command.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' $1 $2)

# Jobs of the builds that test, demo, asan, tsan and fuzz start.
JOBS ?= $(shell nproc)
build_with = @$(MAKE) --no-print-directory -j$(JOBS)

.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all lib demo test soak check check-cuda bench kernels fuzz fuzz-build fuzzers deps asan tsan install clean units format

# What the libraries need, found (and on Debian installed) once; made anew when .ci/setup changes.
ifneq ($(MAKECMDGOALS),clean)
-include $(B)/config.mk
endif
$(B)/config.mk: .ci/setup
	@mkdir -p $(@D)
	@sh .ci/setup $@

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
# Warnings are errors for the compilers that the project is kept clean on (gcc 12, clang 14); a newer one may know new warnings, and gcc
# with sanitizers sees truncations and uninitialised values that are none.
WERROR := $(if $(SAN),,$(if $(filter 12 14,$(shell $(CC) -dumpversion | cut -d. -f1)),-Werror))
# Sanitized builds at -O1: the attention kernels alone take 54 s to compile at -O3, 16 s so; and with line numbers and no types for a
# debugger (-g1): files of kernels, tests and the lab compile in 70 to 84 % of the time.
OPT := $(if $(DEBUG),-O0,$(if $(SAN),-O1,-O3))
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all -DHONE_SANITIZED)
# -ffp-contract=off: a reference gives the same bits whichever instruction set the compiler picks for it.
CFLAGS_ALL = -std=c17 -D_GNU_SOURCE -I. -Iinclude $(if $(SAN),-g1,-g) $(OPT) -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -pthread \
	-Wall -Wextra $(WERROR) -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wno-missing-field-initializers \
	$(SAN_FLAGS) $(LIB_CFLAGS) $(EXTRA_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = -pthread $(SAN_FLAGS) $(LDFLAGS)
# A kernel's suffix is its instruction set (backends/cpu/<op>_<variant>_<isa>.c). The compiler may use all of it, so avx512 is what
# CPU_AVX512 means (base/cpu.h: F, BW, DQ, VL); matrix products, whose needs name them, get the integer and bfloat16 dot products too.
ISA_avx2 := -mavx2 -mfma -mf16c -ffp-contract=fast
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
DOTS_avx512 := -mavx512vnni -mavx512vbmi -mavx512bf16
suffix_of = $(lastword $(subst _, ,$(basename $(notdir $1))))
isa = $(ISA_$(call suffix_of,$1)) $(if $(filter mul_mat_% gate_up_glu_%,$(notdir $1)),$(DOTS_$(call suffix_of,$1)))

# The CUDA backend: where nvcc is, and not in sanitized builds, which compile everything once more for the CPU's sake.
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)
override CUDA := $(if $(SAN),0,$(CUDA))
ifeq ($(CUDA),1)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(lastword $(NVCC))))
CUDA_SRC := $(wildcard backends/cuda/*.cu)
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt
NVCC_FLAGS = -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -I. -Iinclude -lineinfo -Xcompiler \
	-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall --Werror=cross-execution-space-call
endif

LAYERS := base formats ops model model/arch graph comm backends backends/cpu backends/plugin engine lab $(if $(filter 1,$(CUDA)),backends/cuda)
LIB_SRC := $(foreach d,$(LAYERS),$(wildcard $d/*.c))
CMD_SRC := $(wildcard cmd/*.c)
TEST_SRC := $(wildcard tests/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/*.c)
# Objects of kernels may be those of another build, KERNELS: which ones, KERNELS_TAKEN says. Fuzzers look for no faults in them, and they
# are nearly all of what clang has to compile with its instrumentation (560 of 630 s).
KERNELS ?= $(B)
KERNELS_TAKEN ?= %_avx2.c %_avx512.c
KERNEL_SRC := $(filter $(KERNELS_TAKEN),$(filter %_avx2.c %_avx512.c,$(LIB_SRC)))
KERNEL_OBJ := $(KERNEL_SRC:%.c=$(KERNELS)/%.o)
LIB_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out $(KERNEL_SRC),$(LIB_SRC))) $(KERNEL_OBJ) $(CUDA_SRC:%.cu=$(B)/%.cu.o)
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)
TESTS := $(TEST_SRC:%.c=$(B)/%)
# Tests of device code that compiles as C++ on the host too; left out where there is no C++ compiler.
TESTS += $(if $(shell command -v $(firstword $(CXX))),$(patsubst %.cc,$(B)/%,$(wildcard tests/test_*.cc)))
FUZZERS := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
EXAMPLES := $(patsubst %.c,$(B)/%,$(wildcard examples/*.c))
BENCHES := $(patsubst %.c,$(B)/%,$(wildcard bench/*.c))

all: $(B)/hone lib $(EXAMPLES)
lib: $(B)/libhone.a $(B)/libhone.so

# hone_build() names commit, compiler and flags (build_number: commits so far; build_settings: how to build another alike): build.h changes only when one of them does.
COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
NUMBER := $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
$(B)/build.h: FORCE
	@mkdir -p $(@D)
	@printf '#define BUILD_COMMIT "%s"\n#define BUILD_NUMBER %s\n#define BUILD_COMPILER "%s"\n#define BUILD_FLAGS "%s"\n#define BUILD_SETTINGS "%s"\n' \
		"$(COMMIT)" "$(NUMBER)" "$$($(CC) --version | head -n 1)" "$(OPT) $(SAN_FLAGS) $(CFLAGS)" \
		"CUDA=$(CUDA) LINK_STATIC=$(LINK_STATIC) SAN=$(SAN) DEBUG=$(DEBUG)" > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
.PHONY: FORCE
$(B)/engine/engine.o: $(B)/build.h
$(B)/engine/engine.o: EXTRA_CFLAGS := -I$(B)
$(B)/comm/mpi.o $(B)/bench/collectives.o: EXTRA_CFLAGS := $(if $(LINK_STATIC),,$(MPI_CFLAGS))

# Which backends there are: made anew when that changes.
$(B)/backends.stamp: FORCE
	@mkdir -p $(@D)
	@echo 'CUDA=$(CUDA)' | cmp -s - $@ || echo 'CUDA=$(CUDA)' > $@
$(B)/backends/backends.o: $(B)/backends.stamp
ifeq ($(CUDA),1)
$(B)/backends/backends.o: EXTRA_CFLAGS := -DHONE_CUDA
$(B)/backends/cuda/%.o: EXTRA_CFLAGS := -isystem $(CUDA_HOME)/include
$(B)/backends/cuda/module.o: include/hone_cuda.h
$(B)/%.cu.o: %.cu $(B)/config.mk
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
endif

$(B)/%.o: %.c $(B)/config.mk
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa,$<) -MMD -MP -c $< -o $@
$(B)/%.o: %.cc $(B)/config.mk
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -std=c++20 -I. $(if $(SAN),-g1,-g) $(OPT) -ffp-contract=off -fno-exceptions -fno-rtti -Wall -Wextra $(WERROR) -Wno-missing-field-initializers $(SAN_FLAGS) -MMD -MP -c $< -o $@

# Tiles of sums stay in memory at -O1 and each access to them is checked: these two are most of what tests over models then wait for.
ifneq ($(SAN),)
$(B)/ops/dot.o: OPT := -O2
$(B)/backends/cpu/mul_mat_any_%.o $(B)/backends/cpu/mul_mat_id_any_%.o: OPT := -O2
endif

$(B)/libhone.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $^
$(B)/libhone.so: $(LIB_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libhone.so.0 $(LDFLAGS_ALL) $^ $(LIB_LIBS) $(CUDA_LIBS) -lm -ldl -o $@
	@ln -sf libhone.so $(B)/libhone.so.0
$(B)/hone: $(CMD_OBJ) $(B)/libhone.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(if $(LINK_STATIC),$(STATIC_LIBS),$(LIB_LIBS) $(CMD_LIBS)) $(CUDA_LIBS) -lm -ldl -rdynamic -o $@
	$(if $(LINK_STATIC),$(Q)strip --strip-debug $@)
# Written at install, since it names PREFIX.
define PKG_CONFIG
prefix=$(PREFIX)
Name: hone
Description: runs GGUF language models, fast and checked
Version: $(shell sed -n 's/\#define HONE_VERSION "\(.*\)"/\1/p' include/hone.h)
Cflags: -I$${prefix}/include
Libs: -L$${prefix}/lib -lhone
Libs.private: $(LIB_LIBS) -lm -ldl -pthread
endef
export PKG_CONFIG

$(B)/tests/test_%: $(B)/tests/test_%.o $(B)/libhone.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIB_LIBS) $(TEST_LIBS) $(CUDA_LIBS) -lm -ldl -o $@
$(B)/examples/%: $(B)/examples/%.o $(B)/libhone.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIB_LIBS) $(CUDA_LIBS) -lm -ldl -o $@
$(B)/bench/%: $(B)/bench/%.o $(B)/libhone.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LIB_LIBS) $(CUDA_LIBS) -lm -ldl -o $@

units: $(TESTS)

test:
	$(build_with) all units
	@sh tests/run.sh all

asan:
	$(build_with) B=$(B)/asan SAN=address,undefined $(B)/asan/hone units
	@B=$(B)/asan sh tests/run.sh units
# The tests in which threads meet.
TSAN_TESTS := $(addprefix $(B)/tsan/tests/test_,threads comm collectives engine shard)
# Matrix products for another processor than this, which no model runs here.
UNRUN := $(if $(shell grep -om1 avx512vl /proc/cpuinfo),backends/cpu/mul_mat_%_avx2.c backends/cpu/gate_up_glu_%_avx2.c,%_avx512.c)
tsan:
	$(build_with) kernels
	$(build_with) B=$(B)/tsan KERNELS=$(B) KERNELS_TAKEN='$(UNRUN)' SAN=thread $(TSAN_TESTS)
	@B=$(B)/tsan sh tests/run.sh tsan $(TSAN_TESTS)

# libFuzzer comes with clang; all but the kernels is built once more with its coverage.
kernels: $(KERNEL_OBJ)
fuzz-build:
	$(build_with) kernels
	$(build_with) B=$(B)/clang KERNELS=$(B) CC=clang SAN=fuzzer-no-link,address,undefined fuzzers
fuzzers: $(FUZZERS)
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(B)/libhone.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -fsanitize=fuzzer $(LDFLAGS_ALL) $^ $(LIB_LIBS) -lm -ldl -o $@
fuzz: fuzz-build
	@sh tests/fuzz/run.sh $(FUZZ_SECONDS)

check: all
	@$(B)/hone check --mask none,avx2,avx512,full
# On a machine with a GPU; HONE=<binary> takes one that was built elsewhere.
check-cuda:
	@sh bench/cuda.sh devices check archs agree ladder same allocations memcheck shadow
demo:
	$(build_with) all
	@sh examples/demo.sh
soak:
	$(build_with) all units
	@sh tests/run.sh soak
deps:
	@sh tests/deps.sh
bench: all $(BENCHES)
	@for s in bench/*.sh; do echo "== $$s"; sh $$s || exit 1; done
format:
	clang-format -i $$(git ls-files '*.c' '*.h')

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(B)/hone $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(B)/libhone.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(B)/libhone.so $(DESTDIR)$(PREFIX)/lib/libhone.so.0
	ln -sf libhone.so.0 $(DESTDIR)$(PREFIX)/lib/libhone.so
	printf '%s\n' "$$PKG_CONFIG" > $(DESTDIR)$(PREFIX)/lib/pkgconfig/hone.pc
	install -m 644 include/*.h $(DESTDIR)$(PREFIX)/include/
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(B)/hone manual > $(DESTDIR)$(PREFIX)/share/man/man1/hone.1
	for c in $$(sed -n 's/^COMMAND(\(.*\))/\1/p' cmd/commands.def); do \
		$(B)/hone manual $$c > $(DESTDIR)$(PREFIX)/share/man/man1/hone-$$c.1 || exit 1; done
	$(B)/hone completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hone

clean:
	rm -rf $(B)

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d) $(TESTS:=.d) $(patsubst %.c,$(B)/%.d,$(FUZZ_SRC)) $(EXAMPLES:=.d) $(BENCHES:=.d)
