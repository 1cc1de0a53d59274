#include "compiler/codegen/prelude.h"

namespace stepone::codegen {

std::vector<Piece> DoubleMathPieces() { return {}; }

}  // namespace stepone::codegen
