/* How a job was started: by flags, by mpirun or srun, on a slice of a TPU pod, or alone. */
#include "runtime/cluster/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "processes";

/* Where process 0 of a TPU slice listens. */
enum { TPU_PORT = 8479, MOST_PROCESSES = 65536 };

void ttt__launch_free(launch_plan *plan)
{
    for (int i = 0; plan->hosts != NULL && i < plan->processes; i++)
        free(plan->hosts[i]);
    free(plan->hosts);
    free(plan->addresses);
    free(plan->token);
    *plan = (launch_plan){0};
}

/* The number in a variable; -1 when it is not set, or is none. */
static long number(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || *text == '\0')
        return -1;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *end != '\0' || errno != 0 || value < 0 || value > INT_MAX ? -1 : value;
}

/* ---- mpirun and srun ---------------------------------------------------------------------------
 */

/* How many tasks the launcher says it started; 0: it is none of those known. */
static long launched_tasks(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE",
                                        "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (number(sizes[i]) > 0)
            return number(sizes[i]);
    }
    if (number("SLURM_STEP_ID") >= 0 && number("SLURM_STEP_NUM_TASKS") > 0)
        return number("SLURM_STEP_NUM_TASKS");
    return 0;
}

static const ttt_mpi_api *load_from(const char *path, char why[512])
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        snprintf(why, 512, "%s", dlerror());
        return NULL;
    }
    ttt_mpi_entry entry;
    *(void **)&entry = dlsym(library, TTT_MPI_ENTRY);
    if (entry == NULL || entry()->version != TTT_MPI_VERSION) {
        snprintf(why, 512, "%s is not of this version", path);
        return NULL;
    }
    return entry();
}

pjrt_status *ttt__mpi_load(const ttt_mpi_api **out)
{
    static const char *const places[] = {"libttt_mpi.so", "../lib/ttt/libttt_mpi.so"};
    char why[512] = "it is not there", path[PATH_MAX], program[PATH_MAX] = "";
    const char *given = getenv("TTT_MPI_LIBRARY");
    *out = given == NULL ? NULL : load_from(given, why);
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = size > 0 ? strrchr(program, '/') : NULL;
    for (size_t i = 0; given == NULL && slash != NULL && *out == NULL && i < 2; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)(slash - program), program, places[i]);
        if (n < (int)sizeof path && access(path, R_OK) == 0)
            *out = load_from(path, why);
    }
    if (*out == NULL)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "mpirun or srun started this, but libttt_mpi.so cannot be loaded (%s): "
                         "build where MPI is installed, or use --launch tcp",
                         why);
    return NULL;
}

static pjrt_status *ask_mpi(launch_plan *plan)
{
    char error[PJRT_MESSENGER_ERROR] = "";
    PJRT_TRY(ttt__mpi_load(&plan->mpi));
    if (plan->mpi->open(&plan->rank, &plan->processes, error) != 0)
        return PJRT_FAIL(UNAVAILABLE, call, "%s", error);
    if (plan->processes == 1 && launched_tasks() > 1)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "%ld tasks were started, but MPI sees one alone: start them with the "
                         "mpirun of the same MPI, or srun --mpi=pmix",
                         launched_tasks());
    return NULL;
}

/* ---- TPU slices --------------------------------------------------------------------------------
 */

static int count_hosts(const char *list)
{
    int n = list == NULL || *list == '\0' ? 0 : 1;
    for (; n > 0 && *list != '\0'; list++)
        n += *list == ',';
    return n;
}

static pjrt_status *ask_tpu(launch_plan *plan)
{
    const char *at = getenv("TPU_WORKER_HOSTNAMES");
    long rank = number("TPU_WORKER_ID");
    plan->processes = count_hosts(at);
    if (plan->processes == 0 || rank < 0 || rank >= plan->processes)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "a worker of a TPU slice has TPU_WORKER_HOSTNAMES (now %s) and "
                         "TPU_WORKER_ID below their number (now %s)",
                         at == NULL ? "not set" : at,
                         getenv("TPU_WORKER_ID") == NULL ? "not set" : getenv("TPU_WORKER_ID"));
    plan->rank = (int)rank;
    plan->hosts = calloc((size_t)plan->processes, sizeof *plan->hosts);
    if (plan->hosts == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < plan->processes; i++) {
        size_t length = strcspn(at, ",");
        plan->hosts[i] = strndup(at, length);
        if (plan->hosts[i] == NULL)
            return PJRT_NO_MEMORY(call);
        at += length + (at[length] == ',');
    }
    plan->port = number("TTT_PORT") > 0 ? (int)number("TTT_PORT") : TPU_PORT;
    if (asprintf(&plan->addresses, "%s:%d", plan->hosts[0], plan->port) < 0) {
        plan->addresses = NULL;
        return PJRT_NO_MEMORY(call);
    }
    return NULL;
}

/* ---- flags -------------------------------------------------------------------------------------
 */

static pjrt_status *read_flags(const ttt_job_options *o, launch_plan *plan)
{
    const char *colon = o->coordinator == NULL ? NULL : strrchr(o->coordinator, ':');
    char *end = NULL;
    long port = colon == NULL ? 0 : strtol(colon + 1, &end, 10);
    if (o->processes < 1 || o->processes > MOST_PROCESSES || o->rank < 0 || o->rank >= o->processes)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "rank %d of %d processes: give --processes 4 and --rank 0 to 3", o->rank,
                         o->processes);
    if (o->processes > 1 && (colon == NULL || colon == o->coordinator || *end != '\0' ||
                             end == colon + 1 || port < 1 || port > 65535))
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "the coordinator is HOST:PORT of process 0, as in host-a:4000: not \"%s\"",
                         o->coordinator == NULL ? "" : o->coordinator);
    plan->rank = o->rank;
    plan->processes = o->processes;
    plan->port = (int)port;
    plan->addresses = strdup(o->coordinator == NULL ? "" : o->coordinator);
    return plan->addresses == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

static pjrt_status *find_token(const ttt_job_options *o, launch_plan *plan)
{
    const char *token = o->token != NULL ? o->token : getenv("TTT_TOKEN");
    if (token == NULL || strlen(token) < 8)
        return PJRT_FAIL(UNAUTHENTICATED, call,
                         "set TTT_TOKEN to the same secret of 8 characters or more in every "
                         "process, as in TTT_TOKEN=$(openssl rand -hex 16)");
    plan->token = strdup(token);
    return plan->token == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

/* ---- all together ------------------------------------------------------------------------------
 */

static ttt_launch guess(const ttt_job_options *o)
{
    if (o->launch != TTT_LAUNCH_AUTO)
        return o->launch;
    if (o->coordinator != NULL || o->processes > 1)
        return TTT_LAUNCH_TCP;
    if (launched_tasks() > 1)
        return TTT_LAUNCH_MPI;
    return count_hosts(getenv("TPU_WORKER_HOSTNAMES")) > 1 ? TTT_LAUNCH_TPU : TTT_LAUNCH_NONE;
}

pjrt_status *ttt__launch_find(const ttt_job_options *options, launch_plan *plan)
{
    *plan = (launch_plan){.launch = guess(options), .processes = 1};
    pjrt_status *st = NULL;
    if (plan->launch == TTT_LAUNCH_MPI)
        st = ask_mpi(plan);
    else if (plan->launch == TTT_LAUNCH_TPU)
        st = ask_tpu(plan);
    else if (plan->launch == TTT_LAUNCH_TCP)
        st = read_flags(options, plan);
    if (st == NULL && plan->processes > 1 && plan->launch != TTT_LAUNCH_MPI)
        st = find_token(options, plan);
    if (st != NULL)
        ttt__launch_free(plan);
    return st;
}
