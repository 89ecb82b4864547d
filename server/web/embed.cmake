file(READ ${IN} TEXT)
get_filename_component(FILE ${IN} NAME)
file(WRITE ${OUT} "// Made from server/web/${FILE}.\n#include \"server/web/page.h\"\n\nnamespace thermocline::web {\nconst std::string_view ${NAME} = R\"text(${TEXT})text\";\n}\n")
