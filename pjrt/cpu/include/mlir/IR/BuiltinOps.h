/*
 * Stand-in for MLIR's own header of this name. The tensorflow-cpu wheel ships MLIR's headers but
 * not LLVM's, so the real one cannot be compiled. It names only what the bridge touches: a module
 * handle (one pointer), its owner, and the context a module lives in (one pointer). The member
 * functions are MLIR's, found in the wheel's libraries; the layouts must stay MLIR's.
 */
#ifndef TTT_PJRT_CPU_MLIR_IR_BUILTIN_OPS_H
#define TTT_PJRT_CPU_MLIR_IR_BUILTIN_OPS_H

#include <cstddef>
#include <utility>

namespace mlir
{

class Operation
{
  public:
    void erase();
};

class ModuleOp
{
  public:
    explicit ModuleOp(Operation *operation = nullptr) : operation_(operation)
    {
    }
    Operation *getOperation() const
    {
        return operation_;
    }

  private:
    Operation *operation_;
};

template <typename OpTy> class OwningOpRef
{
  public:
    OwningOpRef(std::nullptr_t = nullptr) : op_(nullptr)
    {
    }
    OwningOpRef(OwningOpRef &&other) noexcept : op_(other.release())
    {
    }
    OwningOpRef &operator=(OwningOpRef &&other) noexcept
    {
        OpTy incoming = other.release();
        reset();
        op_ = incoming;
        return *this;
    }
    ~OwningOpRef()
    {
        reset();
    }
    OpTy get() const
    {
        return op_;
    }
    OpTy release()
    {
        return std::exchange(op_, OpTy(nullptr));
    }

  private:
    void reset()
    {
        if (op_.getOperation() != nullptr)
            op_.getOperation()->erase();
    }
    OpTy op_;
};

class MLIRContext
{
  public:
    enum class Threading { DISABLED, ENABLED };
    explicit MLIRContext(Threading threading);
    ~MLIRContext();
    MLIRContext(const MLIRContext &) = delete;
    MLIRContext &operator=(const MLIRContext &) = delete;

  private:
    void *impl_;
};

} // namespace mlir

#endif
