/* Collectives between the processes of a job, over messages: see collectives.cc. */
#ifndef PJRT_CPU_COLLECTIVES_H
#define PJRT_CPU_COLLECTIVES_H

#include <memory>
#include <string>

#include "../pjrt_messenger.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace pjrt_cpu
{

/* The caller's key-value callbacks. */
class KeyValueStore
{
  public:
    static absl::StatusOr<std::shared_ptr<KeyValueStore>> From(const PJRT_Client_Create_Args *args);
    absl::StatusOr<std::string> Get(const std::string &key, int timeout_ms) const;
    /* Puts `value`, or returns what another process put there first. */
    absl::StatusOr<std::string> PutOnce(const std::string &key, const std::string &value) const;

  private:
    PJRT_KeyValueGetCallback get_;
    PJRT_KeyValueTryGetCallback try_get_;
    PJRT_KeyValuePutCallback put_;
    void *get_user_, *try_get_user_, *put_user_;
};

/* into[i] = into[i] op from[i] (reduce.cc). */
absl::Status Reduce(xla::PrimitiveType type, xla::ReductionKind kind, size_t count, void *into,
                    const void *from);

/* `messenger` outlives it. */
std::shared_ptr<xla::cpu::CpuCollectives>
NewCollectives(const pjrt_messenger *messenger, std::shared_ptr<KeyValueStore> store, int process);

} // namespace pjrt_cpu

#endif
