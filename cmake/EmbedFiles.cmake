# fa4_embed_files(PREFIX <symbol prefix> OUT <file.S> BASE <folder> FILES <files>): assembler source that holds
# each file, NUL-terminated, between <prefix>_<n> and <prefix>_<n>_end. The object is rebuilt when a file changes.
function(fa4_embed_files)
  cmake_parse_arguments(E "" "PREFIX;OUT" "FILES" ${ARGN})
  set(text ".section .note.GNU-stack,\"\",%progbits\n.section .rodata\n")
  set(index 0)
  foreach(file IN LISTS E_FILES)
    set(symbol ${E_PREFIX}_${index})
    string(APPEND text ".global ${symbol}\n.hidden ${symbol}\n.global ${symbol}_end\n.hidden ${symbol}_end\n"
                       ".balign 16\n${symbol}:\n.incbin \"${file}\"\n${symbol}_end:\n.byte 0\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(CONFIGURE OUTPUT "${E_OUT}" CONTENT "${text}" @ONLY)
  set_property(SOURCE "${E_OUT}" APPEND PROPERTY OBJECT_DEPENDS "${E_FILES}")
endfunction()

# fa4_embed_sources(TARGET <target> BASE <folder>): adds embedded_sources() over every kernels/**.{h,cuh} below BASE.
function(fa4_embed_sources)
  cmake_parse_arguments(E "" "TARGET;BASE" "" ${ARGN})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${E_BASE}/kernels/*.h ${E_BASE}/kernels/*.cuh)
  list(SORT files)
  set(assembler ${CMAKE_CURRENT_BINARY_DIR}/embedded_sources.S)
  fa4_embed_files(PREFIX fa4_source OUT ${assembler} FILES ${files})

  set(declarations "")
  set(rows "")
  set(index 0)
  foreach(file IN LISTS files)
    file(RELATIVE_PATH name ${E_BASE} ${file})
    string(APPEND declarations "extern const char fa4_source_${index}[], fa4_source_${index}_end[];\n")
    string(APPEND rows "      {\"${name}\", fa4_source_${index}, static_cast<size_t>(fa4_source_${index}_end - fa4_source_${index})},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/embedded_sources_table.cc)
  file(CONFIGURE OUTPUT ${table} @ONLY CONTENT "// Made by CMake.
#include \"jit/embedded_sources.h\"

extern \"C\" {
${declarations}}

namespace fa4::internal {

std::span<const EmbeddedFile> embedded_sources() {
  static const EmbeddedFile kFiles[] = {
${rows}  };
  return kFiles;
}

}  // namespace fa4::internal
")
  target_sources(${E_TARGET} PRIVATE ${assembler} ${table})
endfunction()
