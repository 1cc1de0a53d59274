#include "compiler/codegen/prelude.h"

namespace stepone::codegen {

std::vector<Piece> FloatMathPieces() { return {}; }

}  // namespace stepone::codegen
