/*
 * A small machine that runs kernels: threads are fibers, blocks and clusters run one after another,
 * always in the same order, so what it finds it finds every time.
 *
 *     host::machine m;
 *     m.array("W1", w, bytes);                 what kernels may touch, by name
 *     m.launch({.blocks = 8, .threads = 256, .shared = 4096}, [&] { kernel(args); });
 *     m.error()                                empty, or the first thing that went wrong
 *     m.traffic("W1").read                     bytes, and so on
 *
 * Memory rules. Two threads of a launch may touch the same word, one of them writing, only with a
 * barrier of both between. A word of shared memory is written before it is read. A copy's target is
 * touched by nobody until the thread that began it has waited for it.
 */
#ifndef KERNELS_CUDA_HOST_MACHINE_H
#define KERNELS_CUDA_HOST_MACHINE_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace host
{

struct launch_shape {
    int blocks = 1, threads = 32;
    int cluster = 1;        /* blocks that share barriers and can see each other's memory */
    size_t shared = 0;      /* bytes a block */
    bool backwards = false; /* run threads from the last to the first */
};

struct bytes_moved {
    uint64_t read = 0, written = 0;
};

class machine
{
  public:
    machine();
    ~machine();
    machine(const machine &) = delete;
    machine &operator=(const machine &) = delete;

    void array(const char *name, const void *data, size_t bytes);
    void launch(const launch_shape &shape, const std::function<void()> &kernel);

    const std::string &error() const;
    /* Since the counts were last cleared; of one array, or of all. */
    bytes_moved traffic(const char *name) const;
    bytes_moved traffic() const;
    uint64_t flops() const;
    void clear_counts();

    struct inside;

  private:
    std::unique_ptr<inside> in;
};

/* ---- what kernels call, on the machine that is running --------------------------------------- */

struct place {
    int thread, block;
};
place current();
char *current_arena();
void meet_block();
void meet_cluster();
uint32_t exchange(uint32_t v, int mask);
void shared_read(const void *p, size_t bytes);
void shared_write(const void *p, size_t bytes);
void global_read(const void *p, size_t bytes);
void global_write(const void *p, size_t bytes);
void copy_begin(void *to, const void *from, size_t bytes);
void copy_close();
void copy_wait(int open);
void *of_block(void *p, int rank);
void matrix_product(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void count_flops(uint64_t n);

} // namespace host

#endif
