// The loop nest of a group: dims in memory order, merged where they run together; rows, columns, vectors and shards.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "compiler/analysis/op_cost.h"
#include "compiler/loops/expr_graph.h"
#include "compiler/loops/index_expr.h"
#include "compiler/loops/stage_builder.h"

namespace stepone::loops {
namespace {

constexpr int64_t kShardPoints = 32768;  // a shard adds up at least this many points
constexpr int64_t kMostShards = 16;
constexpr int64_t kSlotBytes = 32 << 10;

bool IsAccess(const Inst& inst) {
  return inst.code == Code::kLoad || inst.code == Code::kStore || inst.code == Code::kStoreAdd;
}

class Scheduler {
 public:
  Scheduler(ExprGraph exprs, const NestRequest& request, const FuseOptions& options)
      : exprs_(std::move(exprs)), request_(request), options_(options), sizes_(request.atoms) {}

  Scheduled Run(const std::vector<int64_t>& extents, const std::vector<ir::DType>& dtypes) {
    MarkUsed();
    if (request_.reduces_all && !request_.columns_fixed) CutLongDim();
    for (size_t atom = 0; atom < sizes_.size(); ++atom) {
      const bool column = request_.columns_fixed && ((request_.columns >> atom) & 1);
      (column ? columns_ : rows_).push_back(static_cast<int32_t>(atom));
    }
    SortByStride(rows_);
    if (!request_.keep_column_order) SortByStride(columns_);
    result_.column_strides.assign(request_.atoms.size(), 0);
    int64_t stride = 1;
    for (size_t i = columns_.size(); i-- > 0;) {
      if (columns_[i] < static_cast<int32_t>(request_.atoms.size())) result_.column_strides[columns_[i]] = stride;
      stride *= sizes_[columns_[i]];
    }
    DropOnes(rows_);
    DropOnes(columns_);
    MergeRuns(rows_);
    MergeRuns(columns_);
    if (!request_.columns_fixed) ChooseColumns();
    Renumber();
    Kernel& kernel = result_.kernel;
    kernel.ordered_rows = request_.ordered_rows;
    ChooseVectorDim();
    AddBuffers(extents, dtypes);
    BuildStages(exprs_, kSlotBytes, kernel);
    Count();
    return std::move(result_);
  }

 private:
  void MarkUsed() {
    used_.assign(exprs_.size(), false);
    for (const Inst& root : exprs_.roots) {
      for (InstId arg : root.args) Mark(arg);
    }
  }
  void Mark(ExprId id) {
    if (used_[id]) return;
    used_[id] = true;
    for (InstId arg : exprs_.at(id).args) Mark(arg);
  }

  template <typename F>
  void ForEachInst(F visit) {
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      if (used_[id]) visit(exprs_.at(id));
    }
    for (Inst& root : exprs_.roots) visit(root);
  }

  // A sum of everything over one long dim becomes rows of a length that divides it.
  void CutLongDim() {
    if (sizes_.size() != 1) return;
    const int64_t size = sizes_[0];
    for (int64_t inner = 4096; inner >= 64; --inner) {
      if (size % inner != 0 || size / inner < 2) continue;
      const Split split{0, inner};
      ForEachInst([&](Inst& inst) { inst.index = ApplySplit(inst.index, split); });
      ApplySplit(split, &sizes_);
      return;
    }
  }

  int64_t Elements(const Inst& inst) const {
    int64_t elements = 1;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      if (DependsOn(inst.index, static_cast<int32_t>(d))) elements *= sizes_[d];
    }
    return elements;
  }

  // Slow dims first, as most of the memory traffic sees them; equal ones keep their order.
  void SortByStride(std::vector<int32_t>& dims) {
    std::vector<std::pair<const Inst*, double>> accesses;
    ForEachInst([&](Inst& inst) {
      if (!IsAccess(inst)) return;
      const double weight = static_cast<double>(Elements(inst) * ir::ByteSize(inst.type));
      accesses.emplace_back(&inst, inst.code == Code::kLoad ? weight : 1.5 * weight);
    });
    const auto slower = [&](int32_t a, int32_t b) {
      double votes = 0;
      for (const auto& [inst, weight] : accesses) {
        const int64_t x = std::abs(Coefficient(inst->index, a)), y = std::abs(Coefficient(inst->index, b));
        if (x != 0 && y != 0 && x != y) votes += x > y ? weight : -weight;
      }
      return votes;
    };
    for (size_t i = 1; i < dims.size(); ++i) {
      for (size_t j = i; j > 0 && slower(dims[j], dims[j - 1]) > 0; --j) std::swap(dims[j], dims[j - 1]);
    }
  }

  void DropOnes(std::vector<int32_t>& dims) {
    std::erase_if(dims, [&](int32_t dim) { return sizes_[dim] == 1; });
  }

  bool RunTogether(int32_t outer, int32_t inner) {
    bool together = true;
    ForEachInst([&](Inst& inst) {
      bool plain = true;
      const int64_t a = Coefficient(inst.index, outer, &plain), b = Coefficient(inst.index, inner, &plain);
      together &= plain && a == b * sizes_[inner];
    });
    return together;
  }

  // `inner` takes over what `outer` counted.
  void MergeRuns(std::vector<int32_t>& dims) {
    for (size_t i = dims.size(); i-- > 1;) {
      const int32_t outer = dims[i - 1], inner = dims[i];
      if (!RunTogether(outer, inner)) continue;
      ForEachInst([&](Inst& inst) {
        std::erase_if(inst.index.terms, [outer](const Term& term) { return term.dim == outer; });
      });
      sizes_[inner] *= sizes_[outer];
      dims.erase(dims.begin() + static_cast<int64_t>(i) - 1);
    }
  }

  int64_t Product(const std::vector<int32_t>& dims) const {
    int64_t product = 1;
    for (int32_t dim : dims) product *= sizes_[dim];
    return product;
  }

  // For kernels whose rows and columns are free: the last dim gives the columns, unless the rows would be few and long.
  void ChooseColumns() {
    if (rows_.size() < 2) {
      if (request_.reduces_all) std::swap(rows_, columns_);
      return;
    }
    const int64_t last = sizes_[rows_.back()];
    if (!request_.reduces_all) {
      if (Product(rows_) / last < 32 && last >= 2048) return;
      columns_ = {rows_.back()};
      rows_.pop_back();
      return;
    }
    while (rows_.size() > 1 && (columns_.empty() || Product(columns_) < 256)) {
      columns_.insert(columns_.begin(), rows_.back());
      rows_.pop_back();
    }
  }

  void Renumber() {
    Kernel& kernel = result_.kernel;
    std::vector<int32_t> to(sizes_.size(), -1);
    for (const std::vector<int32_t>* list : {&rows_, &columns_}) {
      for (int32_t dim : *list) {
        to[dim] = static_cast<int32_t>(kernel.dims.size());
        kernel.dims.push_back(sizes_[dim]);
      }
      if (list == &rows_) kernel.num_outer = static_cast<int32_t>(kernel.dims.size());
    }
    if (kernel.dims.empty()) {
      kernel.dims = {1};
      kernel.num_outer = 1;
    }
    ForEachInst([&](Inst& inst) { inst.index = loops::Renumber(inst.index, to); });
  }

  // Bytes that are read and written one beside the other along a dim.
  double UnitBytes(int32_t dim) {
    double bytes = 0;
    ForEachInst([&](Inst& inst) {
      if (!IsAccess(inst) || std::abs(Coefficient(inst.index, dim)) != 1) return;
      double elements = 1;
      for (size_t d = 0; d < result_.kernel.dims.size(); ++d) {
        if (DependsOn(inst.index, static_cast<int32_t>(d))) elements *= static_cast<double>(result_.kernel.dims[d]);
      }
      bytes += elements * static_cast<double>(ir::ByteSize(inst.type));
    });
    return bytes;
  }

  void ChooseVectorDim() {
    Kernel& kernel = result_.kernel;
    const int32_t last = static_cast<int32_t>(kernel.dims.size()) - 1;
    kernel.vector_dim = last;
    if (kernel.ordered_rows) {
      if (kernel.num_outer == last + 1) kernel.vector_dim = -1;
      return;
    }
    if (kernel.num_outer == 0 || kernel.num_outer > last) return;
    const int32_t row = kernel.num_outer - 1;
    if (kernel.dims[row] >= 8 && UnitBytes(row) > UnitBytes(last)) kernel.vector_dim = row;
  }

  void AddBuffers(const std::vector<int64_t>& extents, const std::vector<ir::DType>& dtypes) {
    Kernel& kernel = result_.kernel;
    for (size_t i = 0; i < extents.size(); ++i)
      kernel.buffers.push_back(KernelBuffer{dtypes[i], false, false, extents[i]});
    int64_t rows = 1, columns = 1;
    for (size_t d = 0; d < kernel.dims.size(); ++d) {
      (static_cast<int32_t>(d) < kernel.num_outer ? rows : columns) *= kernel.dims[d];
    }
    const int64_t shards = std::max<int64_t>(1, std::min({kMostShards, rows * columns / kShardPoints, rows / 4}));
    const std::vector<bool> element = FindElements();
    ForEachInst([&](Inst& inst) {
      if (inst.buffer < 0) return;
      KernelBuffer& buffer = kernel.buffers[inst.buffer];
      (inst.code == Code::kLoad ? buffer.read : buffer.written) = true;
      if (inst.code == Code::kStoreAdd) buffer.read = true;
      if (inst.code != Code::kAccumulate) return;
      kernel.shards = shards;
      buffer.extent = shards * (element[inst.args[0]] ? columns : 1);
    });
  }

  // Per expression: whether it differs between the columns of a row.
  std::vector<bool> FindElements() const {
    std::vector<bool> element(exprs_.size(), false);
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      const Inst& inst = exprs_.at(id);
      if (inst.code == Code::kReduce) continue;
      for (const Term& term : inst.index.terms) element[id] = element[id] || term.dim >= result_.kernel.num_outer;
      for (InstId arg : inst.args) element[id] = element[id] || element[arg];
    }
    return element;
  }

  // Bytes and flops for reports: each place of memory once.
  void Count() {
    Kernel& kernel = result_.kernel;
    std::map<std::pair<int32_t, bool>, int64_t> bytes;
    sizes_ = kernel.dims;
    int64_t rows = 1, all = 1;
    for (size_t d = 0; d < kernel.dims.size(); ++d) {
      all *= kernel.dims[d];
      if (static_cast<int32_t>(d) < kernel.num_outer) rows *= kernel.dims[d];
    }
    for (const Stage& stage : kernel.stages) {
      for (InstId id : stage.insts) {
        const Inst& inst = kernel.insts[id];
        if (inst.code == Code::kScalar || inst.code == Code::kReduce || inst.code == Code::kAccumulate) {
          kernel.flops += analysis::FlopsPerElement(inst.op) * (stage.element ? all : rows);
        }
        if (inst.buffer < 0) continue;
        const KernelBuffer& buffer = kernel.buffers[inst.buffer];
        const int64_t elements = inst.code == Code::kAccumulate ? buffer.extent
                                 : inst.indirect.empty()        ? std::min(Elements(inst), buffer.extent)
                                                                : (stage.element ? all : rows);
        int64_t& most = bytes[{inst.buffer, inst.code == Code::kLoad}];
        most = std::max(most, elements * ir::ByteSize(inst.type));
      }
    }
    for (const auto& entry : bytes) kernel.bytes_moved += entry.second;
  }

  ExprGraph exprs_;
  const NestRequest& request_;
  const FuseOptions& options_;
  ir::Dims sizes_;  // of atoms; of merged dims after MergeRuns
  std::vector<bool> used_;
  std::vector<int32_t> rows_, columns_;  // atoms, from slow to fast
  Scheduled result_;
};

}  // namespace

Scheduled Schedule(ExprGraph exprs, const NestRequest& request, const std::vector<int64_t>& extents,
                   const std::vector<ir::DType>& dtypes, const FuseOptions& options) {
  return Scheduler(std::move(exprs), request, options).Run(extents, dtypes);
}

}  // namespace stepone::loops
