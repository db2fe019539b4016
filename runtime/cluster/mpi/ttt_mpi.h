/*
 * What `ttt` asks of MPI. The functions live in a library of their own, libttt_mpi.so, which is
 * loaded when a job was started by mpirun or srun: the program itself runs where there is no MPI.
 * All return 0, or -1 with a sentence in `error`.
 */
#ifndef RUNTIME_CLUSTER_MPI_TTT_MPI_H
#define RUNTIME_CLUSTER_MPI_TTT_MPI_H

#include "pjrt/pjrt_messenger.h"

enum { TTT_MPI_VERSION = 1 };

/* Asked a few times a second by one who waits for messages from and to `pending`: 0 to go on
 * waiting, -1 to give up, with the reason. */
typedef int (*ttt_mpi_wait)(void *user, const int *pending, size_t n_pending,
                            char error[PJRT_MESSENGER_ERROR]);

typedef struct ttt_mpi_api {
    int version;
    int (*open)(int *rank, int *processes, char error[PJRT_MESSENGER_ERROR]);
    /* Everyone gets what rank 0 has. */
    int (*broadcast)(void *bytes, size_t size, char error[PJRT_MESSENGER_ERROR]);
    /* As in pjrt_messenger. Once it failed, all that follow do. */
    int (*exchange)(int tag, const pjrt_message *sends, size_t n_sends,
                    const pjrt_message *receives, size_t n_receives, ttt_mpi_wait wait, void *user,
                    char error[PJRT_MESSENGER_ERROR]);
    /* Waits for the others to do the same; `lost`: there are some who will not, do not wait. */
    void (*close)(int lost);
} ttt_mpi_api;

/* The one symbol of the library. */
typedef const ttt_mpi_api *(*ttt_mpi_entry)(void);
#define TTT_MPI_ENTRY "ttt_mpi"
const ttt_mpi_api *ttt_mpi(void);

#endif
