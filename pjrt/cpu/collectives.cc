/*
 * Collectives between the processes of a job. The devices of one process that take part meet first;
 * the last to come does the work of all: one exchange of messages with the other processes,
 * whatever the number of devices, and the others find their results when they wake. Sums are taken
 * over the devices of a process, then over processes, both in the order of ranks: the same sum
 * every time, and the same on every device.
 *
 * Every set of devices has a tag of its own that all processes agree on by the key-value store, so
 * that it does not matter in which order different sets come to exchange. Nobody waits for good: a
 * lost process, or one that does not come, ends every wait with its name.
 */
#include "collectives.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xla/pjrt/plugin/xla_cpu/cpu_topology.h"
#include "xla/primitive_util.h"

namespace pjrt_cpu
{

namespace
{

using Bytes = std::vector<char>;

/* Arrays up to this size go to everyone whole: one exchange instead of two. */
constexpr size_t kSmall = 16384;

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kPermute };

/* What one device wants. */
struct Call {
    Kind kind;
    xla::PrimitiveType type;
    size_t count; /* elements, as xla::Communicator has it */
    xla::ReductionKind reduction = xla::ReductionKind::SUM;
    std::vector<const char *> send = {}; /* one; of all-to-all one a rank */
    std::vector<char *> receive = {};
    std::optional<int> source = {}; /* permute */
    std::vector<int> targets = {};
};

/* Devices of one process at one collective. */
struct Meeting {
    std::map<int, Call> calls; /* by rank */
    bool working = false, done = false;
    absl::Status status;
};

/* A set of devices, some of them of this process. */
class Group
{
  public:
    Group(const pjrt_messenger *messenger, int process, int tag,
          absl::Span<const xla::GlobalDeviceId> devices)
        : messenger_(messenger), process_(process), tag_(tag)
    {
        for (size_t rank = 0; rank < devices.size(); rank++)
            ranks_[xla::UnpackCpuProcessIndex(xla::PjRtGlobalDeviceId(devices[rank].value()))]
                .push_back(static_cast<int>(rank));
        size_ = devices.size();
    }

    absl::Status Enter(int rank, Call call, absl::Duration timeout);

    size_t size() const
    {
        return size_;
    }

  private:
    struct Mail {
        int process;
        Bytes bytes;
    };

    absl::Status Wait(std::unique_lock<std::mutex> &lock, Meeting &meeting, absl::Duration timeout);
    absl::Status Work(Meeting &meeting);
    absl::Status AllReduce(Meeting &meeting);
    absl::Status ReduceScatter(Meeting &meeting);
    absl::Status AllGather(Meeting &meeting);
    absl::Status AllToAll(Meeting &meeting);
    absl::Status Permute(Meeting &meeting);
    absl::Status SumWhole(const Call &one, Bytes &mine);
    absl::Status SumPieces(const Call &one, Bytes &mine);

    absl::StatusOr<Bytes> LocalSum(const Meeting &meeting, size_t count) const;
    absl::Status Exchange(std::vector<Mail> &out, std::vector<Mail> &in);
    /* What `mine` is among the pieces of all processes, reduced in the order of processes. */
    absl::Status ReduceInOrder(const Call &one, size_t count, Bytes &mine,
                               const std::vector<Mail> &others) const;
    bool IsMine(int rank) const
    {
        const std::vector<int> &mine = ranks_.at(process_);
        return std::find(mine.begin(), mine.end(), rank) != mine.end();
    }

    const pjrt_messenger *messenger_;
    const int process_, tag_;
    size_t size_;
    std::map<int, std::vector<int>> ranks_; /* of each process */

    std::mutex mutex_;
    std::condition_variable changed_;
    std::shared_ptr<Meeting> meeting_ = std::make_shared<Meeting>();
    absl::Status broken_;
};

/* ---- meeting ---- */

bool SameCall(const Call &a, const Call &b)
{
    return a.kind == b.kind && a.type == b.type && a.count == b.count && a.reduction == b.reduction;
}

absl::Status Group::Wait(std::unique_lock<std::mutex> &lock, Meeting &meeting,
                         absl::Duration timeout)
{
    const absl::Time deadline = absl::Now() + timeout;
    while (!meeting.done) {
        if (changed_.wait_for(lock, std::chrono::milliseconds(100)) == std::cv_status::no_timeout ||
            meeting.working)
            continue;
        char error[PJRT_MESSENGER_ERROR] = "";
        if (messenger_->failed(messenger_->user, error) != 0)
            meeting.status = absl::UnavailableError(error);
        else if (absl::Now() > deadline)
            meeting.status = absl::DeadlineExceededError(
                absl::StrCat("of the devices of process ", process_, " only ", meeting.calls.size(),
                             " came to a collective of ", ranks_.at(process_).size(), " within ",
                             absl::FormatDuration(timeout)));
        if (!meeting.status.ok()) {
            meeting.done = true;
            broken_ = meeting.status;
            changed_.notify_all();
        }
    }
    return meeting.status;
}

absl::Status Group::Enter(int rank, Call call, absl::Duration timeout)
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (!broken_.ok())
        return broken_;
    std::shared_ptr<Meeting> meeting = meeting_;
    if (!meeting->calls.empty() && !SameCall(meeting->calls.begin()->second, call)) {
        meeting->status = broken_ = absl::InternalError(
            absl::StrCat("devices of process ", process_, " came to different collectives"));
        meeting->done = true;
        changed_.notify_all();
        return broken_;
    }
    if (!meeting->calls.emplace(rank, std::move(call)).second)
        return absl::InternalError("a device came to a collective twice");
    if (meeting->calls.size() < ranks_.at(process_).size())
        return Wait(lock, *meeting, timeout);

    /* The last one. The next collective has a meeting of its own. */
    meeting->working = true;
    meeting_ = std::make_shared<Meeting>();
    lock.unlock();
    absl::Status status;
    try {
        status = Work(*meeting);
    } catch (const std::bad_alloc &) {
        status = absl::ResourceExhaustedError("no memory for a collective");
    }
    lock.lock();
    meeting->status = status;
    meeting->done = true;
    if (!status.ok())
        broken_ = status; /* what the others have is not known any more */
    changed_.notify_all();
    return status;
}

absl::Status Group::Work(Meeting &meeting)
{
    switch (meeting.calls.begin()->second.kind) {
    case Kind::kAllReduce:
        return AllReduce(meeting);
    case Kind::kReduceScatter:
        return ReduceScatter(meeting);
    case Kind::kAllGather:
        return AllGather(meeting);
    case Kind::kAllToAll:
        return AllToAll(meeting);
    case Kind::kPermute:
        return Permute(meeting);
    }
    return absl::InternalError("no such collective");
}

absl::Status Group::Exchange(std::vector<Mail> &out, std::vector<Mail> &in)
{
    auto list = [](std::vector<Mail> &mail) {
        std::vector<pjrt_message> messages;
        for (Mail &one : mail) {
            if (!one.bytes.empty())
                messages.push_back({one.process, one.bytes.data(), one.bytes.size()});
        }
        return messages;
    };
    const std::vector<pjrt_message> sends = list(out), receives = list(in);
    if (sends.empty() && receives.empty())
        return absl::OkStatus();
    char error[PJRT_MESSENGER_ERROR] = "";
    if (messenger_->exchange(messenger_->user, tag_, sends.data(), sends.size(), receives.data(),
                             receives.size(), error) != 0)
        return absl::UnavailableError(error);
    return absl::OkStatus();
}

/* ---- reductions ---- */

size_t SizeOf(const Call &call)
{
    return static_cast<size_t>(xla::primitive_util::ByteWidth(call.type));
}

absl::StatusOr<Bytes> Group::LocalSum(const Meeting &meeting, size_t count) const
{
    const Call &one = meeting.calls.begin()->second;
    Bytes sum(one.send[0], one.send[0] + count * SizeOf(one));
    for (auto it = std::next(meeting.calls.begin()); it != meeting.calls.end(); ++it) {
        absl::Status status =
            Reduce(one.type, one.reduction, count, sum.data(), it->second.send[0]);
        if (!status.ok())
            return status;
    }
    return sum;
}

absl::Status Group::ReduceInOrder(const Call &one, size_t count, Bytes &mine,
                                  const std::vector<Mail> &others) const
{
    Bytes sum;
    auto add = [&](const Bytes &piece) -> absl::Status {
        if (!sum.empty())
            return Reduce(one.type, one.reduction, count, sum.data(), piece.data());
        sum = piece;
        return absl::OkStatus();
    };
    size_t next = 0;
    for (const auto &[process, ranks] : ranks_) {
        absl::Status status = add(process == process_ ? mine : others[next++].bytes);
        if (!status.ok())
            return status;
    }
    mine = std::move(sum);
    return absl::OkStatus();
}

absl::Status Group::SumWhole(const Call &one, Bytes &mine)
{
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (process == process_)
            continue;
        out.push_back({process, mine});
        in.push_back({process, Bytes(mine.size())});
    }
    absl::Status status = Exchange(out, in);
    return status.ok() ? ReduceInOrder(one, one.count, mine, in) : status;
}

/* Every process sums a piece, then all give theirs to all. */
absl::Status Group::SumPieces(const Call &one, Bytes &mine)
{
    const size_t processes = ranks_.size();
    auto start = [&](size_t piece) { return one.count * piece / processes * SizeOf(one); };
    auto cut = [&](size_t piece) {
        return Bytes(mine.begin() + start(piece), mine.begin() + start(piece + 1));
    };
    size_t own = std::distance(ranks_.begin(), ranks_.find(process_)), piece = 0;
    Bytes sum = cut(own);
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (piece != own) {
            out.push_back({process, cut(piece)});
            in.push_back({process, Bytes(sum.size())});
        }
        piece++;
    }
    absl::Status status = Exchange(out, in);
    if (status.ok())
        status = ReduceInOrder(one, sum.size() / SizeOf(one), sum, in);
    if (!status.ok())
        return status;
    for (size_t i = 0; i < out.size(); i++) {
        in[i].bytes.resize(out[i].bytes.size());
        out[i].bytes = sum;
    }
    status = Exchange(out, in);
    if (!status.ok())
        return status;
    for (size_t i = 0, other = 0; i < processes; i++) {
        const Bytes &bytes = i == own ? sum : in[other++].bytes;
        std::copy(bytes.begin(), bytes.end(), mine.begin() + start(i));
    }
    return absl::OkStatus();
}

absl::Status Group::AllReduce(Meeting &meeting)
{
    const Call &one = meeting.calls.begin()->second;
    absl::StatusOr<Bytes> sum = LocalSum(meeting, one.count);
    if (!sum.ok())
        return sum.status();
    absl::Status status = sum->size() <= kSmall ? SumWhole(one, *sum) : SumPieces(one, *sum);
    if (!status.ok())
        return status;
    for (auto &[rank, call] : meeting.calls)
        std::copy(sum->begin(), sum->end(), call.receive[0]);
    return status;
}

absl::Status Group::ReduceScatter(Meeting &meeting)
{
    const Call &one = meeting.calls.begin()->second;
    const size_t block = one.count * SizeOf(one);
    absl::StatusOr<Bytes> sum = LocalSum(meeting, one.count * size_);
    if (!sum.ok())
        return sum.status();
    auto pack = [&](const std::vector<int> &ranks) {
        Bytes bytes;
        for (int rank : ranks)
            bytes.insert(bytes.end(), sum->begin() + rank * block,
                         sum->begin() + (rank + 1) * block);
        return bytes;
    };
    Bytes mine = pack(ranks_.at(process_));
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (process == process_)
            continue;
        out.push_back({process, pack(ranks)});
        in.push_back({process, Bytes(mine.size())});
    }
    absl::Status status = Exchange(out, in);
    if (status.ok())
        status = ReduceInOrder(one, mine.size() / SizeOf(one), mine, in);
    if (!status.ok())
        return status;
    auto from = mine.begin();
    for (auto &[rank, call] : meeting.calls) {
        std::copy(from, from + block, call.receive[0]);
        from += block;
    }
    return absl::OkStatus();
}

/* ---- what only moves ---- */

absl::Status Group::AllGather(Meeting &meeting)
{
    const Call &one = meeting.calls.begin()->second;
    const size_t block = one.count * SizeOf(one);
    Bytes mine;
    for (const auto &[rank, call] : meeting.calls)
        mine.insert(mine.end(), call.send[0], call.send[0] + block);
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (process == process_)
            continue;
        out.push_back({process, mine});
        in.push_back({process, Bytes(ranks.size() * block)});
    }
    absl::Status status = Exchange(out, in);
    if (!status.ok())
        return status;
    size_t next = 0;
    for (const auto &[process, ranks] : ranks_) {
        const char *from = process == process_ ? mine.data() : in[next++].bytes.data();
        for (int rank : ranks) {
            for (auto &[to, call] : meeting.calls)
                std::copy(from, from + block, call.receive[0] + rank * block);
            from += block;
        }
    }
    return status;
}

/* Between two processes: by the sender's ranks, for each by the receiver's. */
absl::Status Group::AllToAll(Meeting &meeting)
{
    const Call &one = meeting.calls.begin()->second;
    const size_t block = one.count * SizeOf(one);
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (process == process_)
            continue;
        Bytes bytes;
        for (const auto &[rank, call] : meeting.calls) {
            for (int to : ranks)
                bytes.insert(bytes.end(), call.send[to], call.send[to] + block);
        }
        in.push_back({process, Bytes(bytes.size())});
        out.push_back({process, std::move(bytes)});
    }
    absl::Status status = Exchange(out, in);
    if (!status.ok())
        return status;
    for (const Mail &mail : in) {
        const char *from = mail.bytes.data();
        for (int sender : ranks_.at(mail.process)) {
            for (auto &[rank, call] : meeting.calls) {
                std::copy(from, from + block, call.receive[sender]);
                from += block;
            }
        }
    }
    for (const auto &[sender, sent] : meeting.calls) {
        for (auto &[rank, call] : meeting.calls)
            std::copy(sent.send[rank], sent.send[rank] + block, call.receive[sender]);
    }
    return status;
}

/* Between two processes: by the sender's ranks, for each by the receiver's, pairs that are there.
 */
absl::Status Group::Permute(Meeting &meeting)
{
    const size_t block =
        meeting.calls.begin()->second.count * SizeOf(meeting.calls.begin()->second);
    std::vector<Mail> out, in;
    for (const auto &[process, ranks] : ranks_) {
        if (process == process_)
            continue;
        Bytes bytes;
        for (const auto &[rank, call] : meeting.calls) {
            for (int to : ranks) {
                if (std::find(call.targets.begin(), call.targets.end(), to) != call.targets.end())
                    bytes.insert(bytes.end(), call.send[0], call.send[0] + block);
            }
        }
        out.push_back({process, std::move(bytes)});
        size_t expected = 0;
        for (const auto &[rank, call] : meeting.calls)
            expected += call.source.has_value() &&
                        std::find(ranks.begin(), ranks.end(), *call.source) != ranks.end();
        in.push_back({process, Bytes(expected * block)});
    }
    absl::Status status = Exchange(out, in);
    if (!status.ok())
        return status;
    for (const Mail &mail : in) {
        const char *from = mail.bytes.data();
        for (int sender : ranks_.at(mail.process)) {
            for (auto &[rank, call] : meeting.calls) {
                if (call.source == sender) {
                    std::copy(from, from + block, call.receive[0]);
                    from += block;
                }
            }
        }
    }
    for (auto &[rank, call] : meeting.calls) {
        if (!call.source.has_value())
            std::memset(call.receive[0], 0, block);
        else if (IsMine(*call.source))
            std::memcpy(call.receive[0], meeting.calls.at(*call.source).send[0], block);
    }
    return absl::OkStatus();
}

/* ---- what XLA sees ---- */

const char *In(const stream_executor::DeviceAddressBase &address)
{
    return static_cast<const char *>(address.opaque());
}

char *Out(const stream_executor::DeviceAddressBase &address)
{
    return static_cast<char *>(const_cast<void *>(address.opaque()));
}

class Member final : public xla::Communicator
{
    using Address = stream_executor::DeviceAddressBase;

  public:
    Member(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank)
    {
    }

    xla::Future<> AllReduce(Address send, Address receive, xla::PrimitiveType type, size_t count,
                            xla::ReductionKind kind, const Executor &executor) override
    {
        return Enter({Kind::kAllReduce, type, count, kind, {In(send)}, {Out(receive)}}, executor);
    }

    xla::Future<> ReduceScatter(Address send, Address receive, xla::PrimitiveType type,
                                size_t count, xla::ReductionKind kind,
                                const Executor &executor) override
    {
        return Enter({Kind::kReduceScatter, type, count, kind, {In(send)}, {Out(receive)}},
                     executor);
    }

    xla::Future<> AllGather(Address send, Address receive, xla::PrimitiveType type, size_t count,
                            const Executor &executor) override
    {
        return Enter({Kind::kAllGather, type, count, {}, {In(send)}, {Out(receive)}}, executor);
    }

    xla::Future<> CollectivePermute(Address send, Address receive, xla::PrimitiveType type,
                                    size_t count, std::optional<xla::RankId> source,
                                    absl::Span<const xla::RankId> targets,
                                    const Executor &executor) override
    {
        Call call{Kind::kPermute, type, count, {}, {In(send)}, {Out(receive)}};
        if (source.has_value())
            call.source = static_cast<int>(source->value());
        for (xla::RankId target : targets)
            call.targets.push_back(static_cast<int>(target.value()));
        return Enter(std::move(call), executor);
    }

    xla::Future<> AllToAll(absl::InlinedVector<Address, 4> send,
                           absl::InlinedVector<Address, 4> receive, xla::PrimitiveType type,
                           size_t count, const Executor &executor) override
    {
        Call call{Kind::kAllToAll, type, count};
        for (const Address &address : send)
            call.send.push_back(In(address));
        for (const Address &address : receive)
            call.receive.push_back(Out(address));
        if (call.send.size() != group_->size() || call.receive.size() != group_->size())
            return xla::Future<>(absl::InternalError("an all-to-all has not a buffer a device"));
        return Enter(std::move(call), executor);
    }

    xla::Future<> Broadcast(Address, Address, xla::PrimitiveType, size_t, xla::RankId,
                            const Executor &) override
    {
        return Missing("broadcast");
    }

    xla::Future<> Send(Address, xla::PrimitiveType, size_t, xla::RankId, const Executor &) override
    {
        return Missing("send");
    }

    xla::Future<> Recv(Address, xla::PrimitiveType, size_t, xla::RankId, const Executor &) override
    {
        return Missing("receive");
    }

    absl::StatusOr<size_t> NumRanks() const override
    {
        return group_->size();
    }

    std::string ToString() const override
    {
        return absl::StrCat("rank ", rank_, " of ", group_->size());
    }

  private:
    static xla::Future<> Missing(absl::string_view what)
    {
        return xla::Future<>(absl::UnimplementedError(absl::StrCat("CPU programs have no ", what)));
    }

    xla::Future<> Enter(Call call, const Executor &executor)
    {
        auto cpu = xla::cpu::CpuCollectives::TryCast(&executor);
        absl::Status status =
            cpu.ok() ? group_->Enter(rank_, std::move(call), (*cpu)->timeout()) : cpu.status();
        return status.ok() ? xla::Future<>(absl::OkStatus()) : xla::Future<>(status);
    }

    const std::shared_ptr<Group> group_;
    const int rank_;
};

class Collectives final : public xla::cpu::CpuCollectives
{
  public:
    Collectives(const pjrt_messenger *messenger, std::shared_ptr<KeyValueStore> store, int process)
        : messenger_(messenger), store_(std::move(store)), process_(process)
    {
    }

    absl::StatusOr<std::vector<std::unique_ptr<xla::Communicator>>>
    CreateCommunicators(const xla::CliqueKey &key, const std::optional<xla::CliqueIds> &,
                        absl::Span<const DeviceRank> ranks, const Config &) override
    {
        const std::string name = absl::StrJoin(key.devices(), ",");
        std::lock_guard<std::mutex> lock(mutex_);
        std::shared_ptr<Group> &group = groups_[name];
        if (group == nullptr) {
            absl::StatusOr<int> tag = AgreeOnTag(name);
            if (!tag.ok())
                return tag.status();
            group = std::make_shared<Group>(messenger_, process_, *tag, key.devices());
        }
        std::vector<std::unique_ptr<xla::Communicator>> members;
        for (const DeviceRank &rank : ranks)
            members.push_back(std::make_unique<Member>(group, static_cast<int>(rank.rank.value())));
        return members;
    }

  private:
    /* The first free place from the name's own on; whoever comes first takes it for all. */
    absl::StatusOr<int> AgreeOnTag(const std::string &name)
    {
        uint64_t hash = 0xcbf29ce484222325;
        for (char c : name)
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        for (int i = 0; i < PJRT_MESSENGER_TAGS; i++) {
            int tag = static_cast<int>((hash + i) % PJRT_MESSENGER_TAGS);
            absl::StatusOr<std::string> owner =
                store_->PutOnce(absl::StrCat("cpu/collectives/", tag), name);
            if (!owner.ok())
                return owner.status();
            if (*owner == name)
                return tag;
        }
        return absl::ResourceExhaustedError("too many different sets of devices in collectives");
    }

    const pjrt_messenger *messenger_;
    const std::shared_ptr<KeyValueStore> store_;
    const int process_;
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<Group>> groups_;
};

} // namespace

std::shared_ptr<xla::cpu::CpuCollectives>
NewCollectives(const pjrt_messenger *messenger, std::shared_ptr<KeyValueStore> store, int process)
{
    return std::make_shared<Collectives>(messenger, std::move(store), process);
}

} // namespace pjrt_cpu
