/* The machine of machine.h: fibers, barriers, and a shadow of all memory that kernels touch. */
#include "kernels/cuda/host/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define FIBERS_ARE_ANNOUNCED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS_ARE_ANNOUNCED 1
#endif
#endif
#ifdef FIBERS_ARE_ANNOUNCED
#include <sanitizer/common_interface_defs.h>
#endif

namespace host
{

namespace
{

constexpr size_t STACK = 256 << 10;
constexpr int WARP = 32;
constexpr int NOBODY = -1, SEVERAL = -2, SEVERAL_BLOCKS = -3;

/* When something happened, as barriers count. */
struct moment {
    uint32_t block = 0, cluster = 0;
};

/* What is known of four bytes of shared memory, or of two of global memory in the launch that
 * touched them last. Threads and blocks are counted through a launch. */
struct word {
    int writer = NOBODY, reader = NOBODY, copier = NOBODY;
    moment written, read;
    int reading_block = 0;
    uint32_t launch = 0;
};

struct global_array {
    std::string name;
    const char *data;
    size_t bytes;
    bytes_moved moved;
    std::vector<word> words;
};

struct copy {
    char *to;
    const char *from;
    size_t bytes;
};

struct barrier {
    int arrived = 0;
    uint32_t generation = 0;
};

/* Threads of a warp that do something together. Values of two turns are kept: a thread that is
 * ahead by one may not overwrite what another still has to read. */
struct warp {
    barrier meeting;
    const char *what = nullptr;
    uint32_t values[2][WARP][10];
};

struct block {
    std::vector<char> memory;
    char *base = nullptr;
    std::vector<word> words;
    barrier meeting;
    uint32_t epoch = 0;
    std::vector<warp> warps;
};

struct fiber {
    ucontext_t context;
    char *stack = nullptr;
    void *fake_stack = nullptr;
    int id = 0, thread = 0, rank = 0;
    bool done = false;
    const uint32_t *waits_for = nullptr; /* a generation that has to move on */
    uint32_t generation = 0;
    std::deque<std::vector<copy>> closed;
    std::vector<copy> open;
};

} // namespace

struct machine::inside {
    std::string error;
    std::map<const char *, global_array> arrays; /* by their last byte */
    global_array *last_hit = nullptr;
    uint64_t flops = 0;
    uint32_t launches = 0;

    launch_shape shape;
    const std::function<void()> *kernel = nullptr;
    std::vector<fiber> fibers;
    std::vector<char *> stacks;
    std::vector<block> blocks;
    barrier meeting; /* of the cluster */
    uint32_t epoch = 0;
    int first_block = 0;
    fiber *running = nullptr;
    ucontext_t scheduler;
    void *scheduler_fake_stack = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_size = 0;

    void fail(const char *what, const void *p = nullptr);
    void run_cluster();
    void start(fiber &f);
    void resume(fiber &f);
    void suspend();
    void meet(barrier &b, int expected, uint32_t *epoch);
    void wait_for(barrier &b);
    warp &join(const char *what, int *turn);
    void finish_join(warp &w);
    int my_block() const;
    int my_id() const;
    bool ordered(const moment &then, int owner_block, bool and_others) const;
    word *words_at(const void *p, size_t bytes);
    void note_write(word &w, const void *p);
    void note_read(word &w, const void *p);
    global_array *find(const void *p, size_t bytes);
    void touch(const void *p, size_t bytes, bool write);
};

namespace
{

machine::inside *active;

void enter()
{
    machine::inside *m = active;
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_finish_switch_fiber(nullptr, &m->scheduler_stack, &m->scheduler_stack_size);
#endif
    (*m->kernel)();
    fiber &f = *m->running;
    if (!f.open.empty() || !f.closed.empty())
        m->fail("a thread ends with copies that it never waited for");
    f.done = true;
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_start_switch_fiber(nullptr, m->scheduler_stack, m->scheduler_stack_size);
#endif
    setcontext(&m->scheduler);
}

} // namespace

/* ---- fibers ------------------------------------------------------------------------------------
 */

void machine::inside::fail(const char *what, const void *p)
{
    char text[256];
    if (!error.empty())
        return;
    if (running == nullptr) {
        error = what;
        return;
    }
    snprintf(text, sizeof text, "%s (block %d, thread %d", what, first_block + running->rank,
             running->thread);
    error = text;
    const block &b = blocks[(size_t)running->rank];
    const char *c = static_cast<const char *>(p);
    if (c != nullptr && c >= b.base && c < b.base + shape.shared) {
        snprintf(text, sizeof text, ", byte %zu of shared memory", (size_t)(c - b.base));
        error += text;
    } else if (global_array *a = p == nullptr ? nullptr : find(p, 1)) {
        snprintf(text, sizeof text, ", byte %zu of %s", (size_t)(c - a->data), a->name.c_str());
        error += text;
    }
    error += ")";
}

void machine::inside::start(fiber &f)
{
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = &scheduler;
    makecontext(&f.context, enter, 0);
}

void machine::inside::resume(fiber &f)
{
    running = &f;
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, f.stack, STACK);
#endif
    swapcontext(&scheduler, &f.context);
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
    running = nullptr;
}

void machine::inside::suspend()
{
    fiber &f = *running;
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_start_switch_fiber(&f.fake_stack, scheduler_stack, scheduler_stack_size);
#endif
    swapcontext(&f.context, &scheduler);
#ifdef FIBERS_ARE_ANNOUNCED
    __sanitizer_finish_switch_fiber(f.fake_stack, &scheduler_stack, &scheduler_stack_size);
#endif
}

void machine::inside::run_cluster()
{
    size_t threads = (size_t)shape.threads, count = threads * (size_t)shape.cluster;
    blocks.assign((size_t)shape.cluster, block());
    for (block &b : blocks) {
        b.memory.assign(shape.shared + 16, (char)0xff);
        uintptr_t address = reinterpret_cast<uintptr_t>(b.memory.data());
        b.base = b.memory.data() + (16 - address % 16) % 16;
        b.words.assign((shape.shared + 3) / 4, word());
        b.warps.resize(threads / WARP);
    }
    meeting = barrier();
    fibers.clear();
    fibers.resize(count);
    for (size_t i = 0; i < count; i++) {
        fibers[i].id = (int)i;
        fibers[i].thread = (int)(i % threads);
        fibers[i].rank = (int)(i / threads);
        fibers[i].stack = stacks[i];
        start(fibers[i]);
    }
    for (size_t done = 0; done < count;) {
        bool moved = false;
        for (size_t i = 0; i < count; i++) {
            fiber &f = fibers[shape.backwards ? count - 1 - i : i];
            if (f.done || (f.waits_for != nullptr && *f.waits_for == f.generation))
                continue;
            f.waits_for = nullptr;
            resume(f);
            done += f.done;
            moved = true;
        }
        if (!moved) {
            fail("threads wait at a barrier that others never reach");
            return;
        }
    }
}

void machine::inside::wait_for(barrier &b)
{
    running->waits_for = &b.generation;
    running->generation = b.generation;
    suspend();
}

void machine::inside::meet(barrier &b, int expected, uint32_t *count)
{
    if (++b.arrived < expected) {
        wait_for(b);
        return;
    }
    b.arrived = 0;
    b.generation++;
    ++*count;
}

/* ---- warps -------------------------------------------------------------------------------------
 */

warp &machine::inside::join(const char *what, int *turn)
{
    warp &w = blocks[(size_t)running->rank].warps[(size_t)(running->thread / WARP)];
    if (w.meeting.arrived > 0 && strcmp(w.what, what) != 0)
        fail("threads of a warp do different things together");
    w.what = what;
    *turn = (int)(w.meeting.generation & 1);
    return w;
}

void machine::inside::finish_join(warp &w)
{
    uint32_t ignored = 0;
    meet(w.meeting, WARP, &ignored);
}

uint32_t exchange(uint32_t v, int mask)
{
    machine::inside *m = active;
    int lane = m->running->thread % WARP, turn;
    warp &w = m->join("exchange", &turn);
    w.values[turn][lane][0] = v;
    m->finish_join(w);
    return w.values[turn][lane ^ mask][0];
}

static float bf16_at(const uint32_t *words, int i)
{
    uint32_t bits = (i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * m16n8k16 as PTX lays it out: with lane = 4 group + pair, a thread has rows group and group + 8 of
 * a and c, columns 2 pair and 2 pair + 1 (and those + 8 of a), and of b the rows that a has as
 * columns, in column group.
 */
void matrix_product(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    machine::inside *m = active;
    int lane = m->running->thread % WARP, turn;
    warp &w = m->join("matrix product", &turn);
    memcpy(w.values[turn][lane], a, sizeof a);
    memcpy(w.values[turn][lane] + 4, b, sizeof b);
    m->finish_join(w);
    int group = lane / 4, pair = lane % 4;
    for (int i = 0; i < 4; i++) {
        int half = i / 2, column = 2 * pair + i % 2;
        for (int k = 0; k < 16; k++) {
            const uint32_t *row = w.values[turn][4 * group + k % 8 / 2];
            const uint32_t *other = w.values[turn][4 * column + k % 8 / 2];
            float x = bf16_at(&row[half + 2 * (k / 8)], k % 2);
            c[i] = std::fma(x, bf16_at(&other[4 + k / 8], k % 2), c[i]);
        }
    }
    m->flops += 2 * 16 * 8 * 16 / WARP;
}

/* ---- shared memory -----------------------------------------------------------------------------
 */

int machine::inside::my_block() const
{
    return first_block + running->rank;
}

int machine::inside::my_id() const
{
    return my_block() * shape.threads + running->thread;
}

/* Whether a barrier lies between then and now, for threads of that block, or of it and later
 * ones. */
bool machine::inside::ordered(const moment &then, int owner_block, bool and_others) const
{
    if (owner_block >= first_block && then.cluster != epoch)
        return true; /* clusters before this one are in no order with it */
    return owner_block == my_block() && !and_others &&
           then.block != blocks[(size_t)running->rank].epoch;
}

word *machine::inside::words_at(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);
    for (block &b : blocks) {
        if (c < b.base || c + bytes > b.base + shape.shared)
            continue;
        if ((size_t)(c - b.base) % bytes != 0)
            fail("an access to shared memory is not aligned", p);
        return &b.words[(size_t)(c - b.base) / 4];
    }
    fail("an access outside of shared memory", p);
    return nullptr;
}

void machine::inside::note_write(word &w, const void *p)
{
    int me = my_id();
    if (w.copier != NOBODY)
        fail("a write to where a copy is under way", p);
    if (w.writer != NOBODY && w.writer != me &&
        !ordered(w.written, w.writer / shape.threads, false))
        fail("two threads write the same word without a barrier between", p);
    if (w.reader != NOBODY && w.reader != me &&
        !ordered(w.read, w.reading_block, w.reader == SEVERAL_BLOCKS))
        fail("a word is overwritten while another thread may read it", p);
    w.writer = me;
    w.written = moment{blocks[(size_t)running->rank].epoch, epoch};
    w.reader = NOBODY;
}

void machine::inside::note_read(word &w, const void *p)
{
    int me = my_id(), mine = my_block();
    moment now{blocks[(size_t)running->rank].epoch, epoch};
    if (w.copier != NOBODY)
        fail("a copy is read before it was waited for", p);
    else if (w.writer != NOBODY && w.writer != me &&
             !ordered(w.written, w.writer / shape.threads, false))
        fail("a word is read without a barrier after its write", p);
    if (w.reader == NOBODY || ordered(w.read, w.reading_block, w.reader == SEVERAL_BLOCKS)) {
        w.reader = me;
        w.reading_block = mine;
    } else if (w.reader != me) {
        bool one_block = w.reader != SEVERAL_BLOCKS && w.reading_block == mine;
        w.reader = one_block ? SEVERAL : SEVERAL_BLOCKS;
        w.reading_block = std::min(w.reading_block, mine);
    }
    w.read = now;
}

void shared_write(const void *p, size_t bytes)
{
    machine::inside *m = active;
    word *w = m->words_at(p, bytes);
    for (size_t i = 0; w != nullptr && i < bytes / 4; i++)
        m->note_write(w[i], p);
}

void shared_read(const void *p, size_t bytes)
{
    machine::inside *m = active;
    word *w = m->words_at(p, bytes);
    for (size_t i = 0; w != nullptr && i < bytes / 4; i++) {
        if (w[i].writer == NOBODY)
            m->fail("shared memory is read that nobody has written", p);
        m->note_read(w[i], p);
    }
}

void copy_begin(void *to, const void *from, size_t bytes)
{
    machine::inside *m = active;
    word *w = m->words_at(to, bytes);
    m->touch(from, bytes, false);
    for (size_t i = 0; w != nullptr && i < bytes / 4; i++) {
        m->note_write(w[i], to);
        w[i].copier = m->running->id;
    }
    m->running->open.push_back(
        copy{static_cast<char *>(to), static_cast<const char *>(from), bytes});
}

void copy_close()
{
    fiber *f = active->running;
    f->closed.push_back(std::move(f->open));
    f->open.clear();
}

void copy_wait(int open)
{
    machine::inside *m = active;
    fiber *f = m->running;
    while (f->closed.size() > (size_t)open) {
        for (const copy &c : f->closed.front()) {
            word *w = m->words_at(c.to, c.bytes);
            for (size_t i = 0; w != nullptr && i < c.bytes / 4; i++) {
                w[i].copier = NOBODY;
                m->note_write(w[i], c.to);
            }
            memcpy(c.to, c.from, c.bytes);
        }
        f->closed.pop_front();
    }
}

void *of_block(void *p, int rank)
{
    machine::inside *m = active;
    block &mine = m->blocks[(size_t)m->running->rank];
    if (rank < 0 || rank >= m->shape.cluster) {
        m->fail("a block that is not in the cluster");
        return p;
    }
    return m->blocks[(size_t)rank].base + (static_cast<char *>(p) - mine.base);
}

/* ---- global memory -----------------------------------------------------------------------------
 */

global_array *machine::inside::find(const void *p, size_t bytes)
{
    const char *c = static_cast<const char *>(p);
    if (last_hit != nullptr && c >= last_hit->data && c + bytes <= last_hit->data + last_hit->bytes)
        return last_hit;
    auto hit = arrays.lower_bound(c);
    if (hit == arrays.end() || c < hit->second.data ||
        c + bytes > hit->second.data + hit->second.bytes)
        return nullptr;
    return last_hit = &hit->second;
}

void machine::inside::touch(const void *p, size_t bytes, bool write)
{
    global_array *a = find(p, bytes);
    if (a == nullptr || reinterpret_cast<uintptr_t>(p) % bytes != 0) {
        fail(a == nullptr ? "an access outside of every array"
                          : "an access to global memory is not aligned",
             a == nullptr ? nullptr : p);
        return;
    }
    (write ? a->moved.written : a->moved.read) += bytes;
    word *words = &a->words[(size_t)(static_cast<const char *>(p) - a->data) / 2];
    for (size_t i = 0; i < bytes / 2; i++) {
        if (words[i].launch != launches)
            words[i] = word();
        words[i].launch = launches;
        if (write)
            note_write(words[i], p);
        else
            note_read(words[i], p);
    }
}

void global_read(const void *p, size_t bytes)
{
    active->touch(p, bytes, false);
}

void global_write(const void *p, size_t bytes)
{
    active->touch(p, bytes, true);
}

/* ---- places and barriers -----------------------------------------------------------------------
 */

place current()
{
    const machine::inside *m = active;
    return place{m->running->thread, m->first_block + m->running->rank};
}

char *current_arena()
{
    return active->blocks[(size_t)active->running->rank].base;
}

void meet_block()
{
    machine::inside *m = active;
    block &b = m->blocks[(size_t)m->running->rank];
    m->meet(b.meeting, m->shape.threads, &b.epoch);
}

void meet_cluster()
{
    machine::inside *m = active;
    m->meet(m->meeting, m->shape.threads * m->shape.cluster, &m->epoch);
}

void count_flops(uint64_t n)
{
    active->flops += n;
}

/* ---- the machine -------------------------------------------------------------------------------
 */

machine::machine() : in(new inside)
{
}

machine::~machine()
{
    for (char *stack : in->stacks)
        munmap(stack, STACK);
}

void machine::array(const char *name, const void *data, size_t bytes)
{
    const char *c = static_cast<const char *>(data);
    global_array &a = in->arrays[c + bytes - 1];
    a = global_array{name, c, bytes, bytes_moved(), std::vector<word>((bytes + 1) / 2)};
}

void machine::launch(const launch_shape &shape, const std::function<void()> &kernel)
{
    inside *before = active;
    size_t needed = (size_t)shape.threads * (size_t)shape.cluster;
    if (shape.threads % WARP != 0 || shape.blocks % shape.cluster != 0) {
        in->fail("a launch with part of a warp or of a cluster");
        return;
    }
    while (in->stacks.size() < needed) {
        void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) {
            in->fail("no memory for stacks");
            return;
        }
        in->stacks.push_back(static_cast<char *>(stack));
    }
    active = in.get();
    in->shape = shape;
    in->kernel = &kernel;
    in->launches++;
    for (int first = 0; first < shape.blocks && in->error.empty(); first += shape.cluster) {
        in->first_block = first;
        in->run_cluster();
    }
    active = before;
}

const std::string &machine::error() const
{
    return in->error;
}

bytes_moved machine::traffic(const char *name) const
{
    bytes_moved sum;
    for (const auto &a : in->arrays) {
        if (name != nullptr && a.second.name != name)
            continue;
        sum.read += a.second.moved.read;
        sum.written += a.second.moved.written;
    }
    return sum;
}

bytes_moved machine::traffic() const
{
    return traffic(nullptr);
}

uint64_t machine::flops() const
{
    return in->flops;
}

void machine::clear_counts()
{
    in->flops = 0;
    for (auto &a : in->arrays)
        a.second.moved = bytes_moved();
}

} // namespace host
