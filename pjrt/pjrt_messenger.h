/*
 * Messages between the processes of a job: what collectives of the CPU plugin are made of. Whoever
 * started the processes has a way to carry them and gives it to pjrt_client_create.
 *
 * A call sends some messages and receives some, all at once, and returns when that is done: 0, or
 * -1 with a sentence in `error` that names the process that failed or did not come. Messages of one
 * tag from one process to another arrive in the order they were sent, each whole: both sides know
 * its size. Calls are made from several threads, never from two at once with the same tag.
 *
 * `failed` is asked by those who wait for something else: 0 while all processes live, else -1 and
 * who is lost.
 *
 * Plain C that C++ reads too: the plugin includes it.
 */
#ifndef PJRT_MESSENGER_H
#define PJRT_MESSENGER_H

#include <stddef.h>

enum {
    PJRT_MESSENGER_ERROR = 256,  /* bytes of an error */
    PJRT_MESSENGER_TAGS = 32000, /* tags are 0 … this - 1: MPI promises no more */
};

typedef struct pjrt_message {
    int process; /* the other one */
    void *data;  /* only read when it is sent */
    size_t size;
} pjrt_message;

typedef struct pjrt_messenger {
    int (*exchange)(void *user, int tag, const pjrt_message *sends, size_t n_sends,
                    const pjrt_message *receives, size_t n_receives,
                    char error[PJRT_MESSENGER_ERROR]);
    int (*failed)(void *user, char error[PJRT_MESSENGER_ERROR]);
    void *user;
} pjrt_messenger;

#endif
