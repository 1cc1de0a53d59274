// The Python class GraphBuilder, and how Python values become arguments of a graph.
#ifndef STEPONE_CLIENT_PYTHON_SRC_GRAPH_ARGUMENTS_H_
#define STEPONE_CLIENT_PYTHON_SRC_GRAPH_ARGUMENTS_H_

#include <pybind11/pybind11.h>

namespace stepone::client {

// Adds Value, SymExpr and GraphBuilder to the module.
void BindGraphBuilder(pybind11::module_& module);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_PYTHON_SRC_GRAPH_ARGUMENTS_H_
