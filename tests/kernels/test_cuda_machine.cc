/* The machine that runs kernels on the host: each rule of machine.h, kept and broken. */
#include "tests/kernels/cuda_test.h"

#include "kernels/cuda/device.h"

#include <functional>
#include <vector>

static shared<float> memory()
{
    return shared<float>{reinterpret_cast<float *>(arena())};
}

/* What kernels find wrong; a failed assertion would jump off a fiber. */
static int wrong;

static void should(bool holds)
{
    wrong += !holds;
}

/* Runs it forwards and backwards; each must end as expected, "" for well. */
static void expect_end(const char *error, int cluster, const std::function<void()> &kernel)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        host::machine m;
        host::launch_shape shape;
        shape.blocks = 2 * cluster;
        shape.threads = 64;
        shape.cluster = cluster;
        shape.shared = 1024;
        shape.backwards = backwards != 0;
        wrong = 0;
        m.launch(shape, kernel);
        assert_int_equal(wrong, 0);
        if (*error == 0)
            assert_string_equal(m.error().c_str(), "");
        else if (m.error().find(error) == std::string::npos)
            fail_msg("expected \"%s\", got \"%s\"", error, m.error().c_str());
    }
}

static void barriers_order_what_threads_do(void **)
{
    expect_end("", 1, [] {
        int t = thread_index();
        memory()[t] = (float)t;
        sync_block();
        float other = memory()[63 - t];
        sync_block();
        memory()[t] = other;
    });
}

static void a_missing_barrier_is_found(void **)
{
    expect_end("byte 128", 1, [] { /* of a read and a write, whichever comes first */
                                   int t = thread_index();
                                   memory()[t] = 0;
                                   sync_block();
                                   if (t == 32)
                                       memory()[32] = 1;
                                   (void)(float)memory()[t < 32 ? t : 32];
    });
    expect_end("of shared memory", 1, [] {
        int t = thread_index();
        memory()[t] = (float)t;
        sync_block();
        float other = memory()[63 - t];
        memory()[t] = other;
    });
    expect_end("two threads write", 1, [] { memory()[0] = (float)thread_index(); });
}

static void barriers_that_not_all_reach_are_found(void **)
{
    expect_end("never reach", 1, [] {
        if (thread_index() < 40)
            sync_block();
    });
    expect_end("never reach", 1, [] {
        if (thread_index() < 40)
            shuffle_xor(1, 1);
    });
    expect_end("different things", 1, [] {
        float c[4] = {};
        uint32_t a[4] = {}, b[2] = {};
        if (thread_index() % 2 == 0)
            shuffle_xor(1, 1);
        else
            mma(c, a, b);
    });
}

static void memory_that_was_never_written_is_found(void **)
{
    expect_end("nobody has written", 1, [] { (void)(float)memory()[thread_index()]; });
    expect_end("outside of shared memory", 1, [] { memory()[256] = 1; });
    expect_end("outside of every array", 1, [] {
        static float nowhere;
        store(&nowhere, 1.0f);
    });
}

static void shuffles_exchange(void **)
{
    expect_end("", 1, [] {
        int t = thread_index();
        float sum = (float)t;
        for (int mask = 16; mask > 0; mask /= 2)
            sum += shuffle_xor(sum, mask);
        should(sum == (t < 32 ? 496 : 1520));
    });
}

static void blocks_of_a_cluster_see_each_other(void **)
{
    expect_end("", 4, [] {
        int rank = block_index() % 4;
        if (thread_index() == 0)
            memory()[0] = (float)rank;
        sync_cluster();
        float sum = 0;
        for (int i = 0; i < 4; i++)
            sum += of_block(memory(), i)[0];
        should(sum == 6);
        sync_cluster();
    });
    expect_end("", 4, [] { /* a cluster's barrier is one for its blocks too */
                           memory()[thread_index()] = 1;
                           sync_cluster();
                           memory()[63 - thread_index()] = 2;
    });
    expect_end("another thread may read it", 4, [] {
        if (thread_index() == 0)
            memory()[0] = 1;
        sync_cluster();
        (void)(float)of_block(memory(), 3 - block_index() % 4)[0];
        sync_block();
        if (thread_index() == 0)
            memory()[0] = 2;
    });
}

/* ---- copies and global memory ------------------------------------------------------------------
 */

static std::vector<float> numbers(64, 3.0f);

static void copy_then(host::machine &m, const std::function<void(shared<float>, int)> &rest)
{
    host::launch_shape shape;
    shape.threads = 32;
    shape.shared = 1024;
    m.array("numbers", numbers.data(), numbers.size() * sizeof(float));
    m.launch(shape, [&] {
        int t = thread_index();
        copy_begin<4>(memory().p + t, numbers.data() + t);
        copy_close();
        rest(memory(), t);
    });
}

static void copies_are_there_after_the_wait_alone(void **)
{
    host::machine good, early, alone, never, overwritten;
    copy_then(good, [](shared<float> s, int t) {
        copy_begin<4>(s.p + 32 + t, numbers.data() + 32 + t);
        copy_close();
        copy_wait<1>();
        sync_block();
        should(s[31 - t] == 3);
        copy_wait<0>();
    });
    assert_string_equal(good.error().c_str(), "");
    assert_int_equal(wrong, 0);
    assert_int_equal(good.traffic("numbers").read, 256);
    copy_then(early, [](shared<float> s, int t) {
        (void)(float)s[t];
        copy_wait<0>();
    });
    assert_true(early.error().find("before it was waited for") != std::string::npos);
    copy_then(alone, [](shared<float> s, int t) { /* the wait is for one's own copies */
                                                  copy_wait<0>();
                                                  (void)(float)s[31 - t];
    });
    assert_false(alone.error().empty());
    copy_then(never, [](shared<float>, int) {});
    assert_true(never.error().find("never waited for") != std::string::npos);
    copy_then(overwritten, [](shared<float> s, int t) {
        s[t] = 1;
        copy_wait<0>();
    });
    assert_true(overwritten.error().find("under way") != std::string::npos);
}

static void global_memory_belongs_to_one_thread_if_it_is_written(void **)
{
    std::vector<uint16_t> halves(64);
    host::launch_shape shape;
    shape.blocks = 2;
    for (int bad = 0; bad < 3; bad++) {
        host::machine m;
        m.array("halves", halves.data(), 128);
        m.launch(shape, [&] {
            int at = bad == 0 ? 32 * block_index() + thread_index() : thread_index();
            if (bad < 2)
                store(halves.data() + at, (uint16_t)1);
            else if (block_index() == 0)
                (void)load(halves.data() + at);
            else
                store(halves.data() + at, (uint16_t)1);
        });
        assert_int_equal(m.error().empty(), bad == 0);
        if (bad == 0)
            assert_int_equal(m.traffic().written, 128);
    }
    host::machine m;
    m.array("halves", halves.data(), 128);
    m.launch(shape, [&] { (void)load16(halves.data() + 1); });
    assert_true(m.error().find("not aligned") != std::string::npos);
}

/* A product of 16 x 16 with 16 x 8, with the layout that PTX documents. */
static void a_matrix_product_is_one(void **)
{
    expect_end("", 1, [] {
        int lane = thread_index() % 32, group = lane / 4, pair = lane % 4;
        auto left = [](int r, int k) { return (float)(r - 2 * k); };
        auto right = [](int k, int n) { return (float)(k * n % 5 - 1); };
        uint32_t a[4], b[2];
        float c[4] = {100, 200, 300, 400};
        for (int i = 0; i < 4; i++) {
            int r = group + 8 * (i % 2), k = 2 * pair + 8 * (i / 2);
            a[i] = pack_bf16(left(r, k), left(r, k + 1));
        }
        for (int i = 0; i < 2; i++) {
            int k = 2 * pair + 8 * i;
            b[i] = pack_bf16(right(k, group), right(k + 1, group));
        }
        mma(c, a, b);
        for (int i = 0; i < 4; i++) {
            float sum = 100.0f * (float)(i + 1);
            for (int k = 0; k < 16; k++)
                sum += left(group + 8 * (i / 2), k) * right(k, 2 * pair + i % 2);
            should(c[i] == sum);
        }
    });
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_what_threads_do),
        cmocka_unit_test(a_missing_barrier_is_found),
        cmocka_unit_test(barriers_that_not_all_reach_are_found),
        cmocka_unit_test(memory_that_was_never_written_is_found),
        cmocka_unit_test(shuffles_exchange),
        cmocka_unit_test(blocks_of_a_cluster_see_each_other),
        cmocka_unit_test(copies_are_there_after_the_wait_alone),
        cmocka_unit_test(global_memory_belongs_to_one_thread_if_it_is_written),
        cmocka_unit_test(a_matrix_product_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
