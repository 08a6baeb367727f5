# Mends for compiling Horovod 0.28.1, without a change in Horovod's source.
#
# scripts/setup gives this file to CMake as CMAKE_PROJECT_horovod_INCLUDE: CMake reads it when Horovod's own
# project() begins (Gloo has a project() of its own).

# Leave xla_mpi_ops.cc (operations for XLA on GPUs) out: it includes xla_builder.h, which TensorFlow ships no longer
# (horovod#4314). The target that holds the file does not exist yet, so the call waits for the end of that directory.
# A header is known to a target and is not compiled.
cmake_language(DEFER CALL set_source_files_properties
    "${CMAKE_CURRENT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc"
    DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/horovod/tensorflow"
    PROPERTIES HEADER_FILE_ONLY ON)

# Horovod's copy of FlatBuffers assigns to a constant in a template that nobody uses; g++ 14 refuses that. A copy of
# the header without that `const` comes first.
file(READ "${CMAKE_CURRENT_SOURCE_DIR}/third_party/flatbuffers/include/flatbuffers/stl_emulation.h" STL_EMULATION)
string(REPLACE "const size_type count_;" "size_type count_;" STL_EMULATION "${STL_EMULATION}")
file(WRITE "${CMAKE_BINARY_DIR}/mended/flatbuffers/stl_emulation.h" "${STL_EMULATION}")
include_directories(BEFORE "${CMAKE_BINARY_DIR}/mended")
